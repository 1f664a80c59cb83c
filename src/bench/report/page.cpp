#include "bench/report/page.h"

#include <string_view>

#include "bench/report/markup.h"

namespace kazeia::bench::report {
namespace {

// Blue and orange differ for every kind of colour vision, and in lightness; marks differ in form as well. The shades of
// parts go from dark to light, with a gap between them.
constexpr std::string_view kLight = R"(color-scheme: light;
  --paper: #f5f5f2; --card: #ffffff; --ink: #1b1f24; --quiet: #59616a; --rule: #e2e2dd; --base: #8b929a;
  --kazeia: #0a5fa5; --upstream: #b04a00; --warn: #fdf1dc; --shade: #0000002e;
  --s0: #0b3c6b; --s1: #2a78ba; --s2: #74b0de; --s3: #b3d6ef; --s4: #8a8f96; --s5: #c9ccd0;
)";
constexpr std::string_view kDark = R"(color-scheme: dark;
  --paper: #121518; --card: #1b1f24; --ink: #e9e9e5; --quiet: #a6aeb7; --rule: #31373e; --base: #79828c;
  --kazeia: #6db5ff; --upstream: #f2a054; --warn: #3a2e17; --shade: #000000b0;
  --s0: #2c77bf; --s1: #6db5ff; --s2: #a8d3ff; --s3: #dcedff; --s4: #868e97; --s5: #555d66;
)";

constexpr std::string_view kStyle = R"(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 12px; }
body { margin: 0; }
.page { --under: var(--paper); min-height: 100vh; padding: 24px max(24px, calc((100vw - 1360px) / 2)) 64px; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: anywhere; }
#other { position: absolute; opacity: 0; }
.toggle { float: right; min-height: 44px; padding: 9px 16px; border: 1px solid var(--base); border-radius: 22px;
  cursor: pointer; user-select: none; }
#other:focus-visible ~ .page .toggle, a:focus-visible, summary:focus-visible { outline: 3px solid var(--kazeia); outline-offset: 2px; }
h1, h2, h3, h4, h5 { line-height: 1.25; margin: 0; text-wrap: balance; }
h1 { font-size: 30px; margin-bottom: 8px; }
h2 { font-size: 25px; margin-top: 56px; padding-top: 20px; border-top: 2px solid var(--ink); }
h3 { font-size: 22px; margin-top: 44px; }
h4 { font-size: 18px; margin-top: 32px; }
h5 { font-size: 16px; margin-top: 20px; }
p { margin: 8px 0; max-width: 80ch; }
a { color: var(--kazeia); text-underline-offset: 3px; }
.lead { font-size: 18px; }
.note, small { color: var(--quiet); }
.note b { color: var(--ink); }
small { display: block; font-size: 16px; font-weight: 400; }
.scroll .id { font-weight: 400; }
.warning { padding: 10px 14px; border-left: 4px solid var(--upstream); background: var(--warn); }
.single b { color: var(--tone); font-size: 22px; }
th small { white-space: normal; min-width: 190px; }
.noresult { color: var(--quiet); font-style: italic; }
.id { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 16px; white-space: nowrap; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 16px 0; }
.facts dt { color: var(--quiet); }
.facts dd { margin: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 16px 0; padding: 8px 0;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
nav a { display: inline-block; padding: 10px 0; }
.cards { display: grid; gap: 20px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 540px), 1fr)); margin: 16px 0; }
.card { --under: var(--card); margin: 0; padding: 16px; min-width: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.wide { grid-column: 1 / -1; }
figcaption { font-weight: 600; margin-bottom: 10px; }
.card .note { margin: 12px 0 0; }
svg { display: block; width: 100%; overflow: visible; }
svg.chart { height: auto; min-width: 520px; max-width: 660px; }
.card .scroll { margin: 0; }
.behind { fill: var(--card); }
svg text { font-size: 16px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .axis { fill: var(--quiet); }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .value { paint-order: stroke; stroke: var(--card); stroke-width: 6px; stroke-linejoin: round; }
svg .name { font-weight: 600; }
.grid { stroke: var(--rule); }
.base { stroke: var(--base); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.trend { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 8 6; }
.kazeia { --tone: var(--kazeia); }
.upstream { --tone: var(--upstream); }
.even { --tone: var(--quiet); }
.line, .interval, .mark { stroke: var(--tone); }
.line.many { opacity: 0.6; stroke-width: 1.5; }
.line.none { opacity: 0.8; stroke-width: 1.5; stroke-dasharray: 5 5; }
.line.upstream { stroke-dasharray: 2 5; stroke-linecap: round; stroke-width: 3; }
.interval { fill: none; stroke-width: 2; }
.mark { fill: var(--tone); stroke-width: 2; }
.mark.hollow { fill: var(--card); }
svg text.name { fill: var(--tone); }
.one { stroke: var(--base); stroke-dasharray: 4 4; }
/* Shadows where there is more to the side. */
.scroll { overflow-x: auto; margin: 12px 0; background:
  linear-gradient(90deg, var(--under) 50%, transparent) 0 0 / 48px 100% no-repeat local,
  linear-gradient(-90deg, var(--under) 50%, transparent) 100% 0 / 48px 100% no-repeat local,
  linear-gradient(90deg, var(--shade), transparent) 0 0 / 14px 100% no-repeat scroll,
  linear-gradient(-90deg, var(--shade), transparent) 100% 0 / 14px 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 8px 14px 8px 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: baseline; white-space: nowrap; }
thead th { color: var(--quiet); font-weight: 400; vertical-align: bottom; }
tbody th { font-weight: 600; }
.text { white-space: normal; min-width: 220px; max-width: 420px; overflow-wrap: anywhere; }
tr:target > * { background: var(--warn); }
.ratios { width: 100%; min-width: 700px; margin-bottom: 12px; table-layout: fixed; }
.ratios th:first-child { width: 190px; white-space: normal; overflow-wrap: anywhere; }
.ratios th:nth-child(3) { width: 76px; } .ratios th:nth-child(4) { width: 150px; } .ratios th:last-child { width: 120px; }
.ratios th, .ratios td { padding-top: 0; padding-bottom: 0; vertical-align: middle; }
.ratios .plot { padding-right: 20px; }
.ratios td.plot svg { height: 40px; }
.ratios th.plot svg { height: 26px; }
td.kazeia, td.upstream { color: var(--tone); font-weight: 600; }
.sizes > div + div { margin-top: 18px; }
.size { margin: 0 0 6px; display: flex; flex-wrap: wrap; gap: 0 10px; justify-content: space-between; }
.bar { height: 26px; }
.part, .whole { stroke: var(--card); stroke-width: 2; }
.whole { fill: var(--tone); }
.bar.hollow rect { fill: var(--card); stroke: var(--base); }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); }
.s3 { fill: var(--s3); } .s4 { fill: var(--s4); } .s5 { fill: var(--s5); }
.key { display: flex; flex-wrap: wrap; gap: 2px 20px; list-style: none; margin: 8px 0 0; padding: 0; }
.key li { display: flex; align-items: center; gap: 8px; }
.swatch { width: 14px; height: 14px; flex: none; }
summary { padding: 10px 0; cursor: pointer; color: var(--kazeia); }
@media print { .toggle { display: none; } .card { break-inside: avoid; } }
)";

// A child of the page cannot change what surrounds it; the switch stands before it, and is the label's in it.
std::string style() {
  std::string css(":root { ");
  css.append(kLight).append("}\n@media (prefers-color-scheme: dark) { :root { ").append(kDark).append("} }\n");
  css.append("#other:checked ~ .page { ").append(kDark).append("}\n");
  css.append("@media (prefers-color-scheme: dark) { #other:checked ~ .page { ").append(kLight).append("} }\n");
  return css.append(kStyle);
}

}  // namespace

std::string page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
         "img-src data:; base-uri 'none'; form-action 'none'\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>" +
         escaped(title) + "</title>\n<style>\n" + style() +
         "</style>\n</head>\n<body>\n<input type=\"checkbox\" id=\"other\" aria-label=\"the other colours\">\n<div "
         "class=\"page\">\n" +
         body + "</div>\n</body>\n</html>\n";
}

}  // namespace kazeia::bench::report
