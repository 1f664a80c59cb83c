// `kazeia versus`: upstream's default CPU configuration against the tiles, on this machine, in one run.
//
// Every repetition is a pair of fresh processes, upstream first, then tiles, asked for the same steps on the same
// number of threads. The quoted ratio is the median over the pairs, so that a machine that drifts slows both sides.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "bench/bandwidth.h"
#include "bench/child.h"
#include "bench/statistics.h"
#include "gguf/reader.h"
#include "plan/threads.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

struct VersusArguments {
  std::string model;
  int threads = 0;
  int repetitions = 3;
  bool quick = false;
  bool accept_noise = false;
  bool json = false;
  std::string tile_cache;
};

constexpr double kMostVariation = 0.05;
constexpr std::uint64_t kReadBytes = 2 * kGiB;

// One figure of the table: where it comes from and which direction is good.
struct Figure {
  std::string key;     // in `ratios`
  std::string sample;  // as the children name it
  std::string unit;
  double scale;  // sample * scale is in `unit`
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all{
      {"decode_0", "decode_0", "tok/s", 1},
      {"decode_4096", "decode_4096", "tok/s", 1},
      {"prefill_128", "prefill_128", "tok/s", 1},
      {"prefill_512", "prefill_512", "tok/s", 1},
      {"prefill_2048", "prefill_2048", "tok/s", 1},
      {"load", "first_token_ms", "ms", 1},
      {"peak_rss", "peak_rss_bytes", "MiB", 1.0 / static_cast<double>(kMiB)},
  };
  return all;
}

std::vector<std::string> steps(bool quick) {
  if (quick) return {"decode:0:16", "prefill:128", "prefill:512"};
  return {"decode:0:48", "prefill:128", "prefill:512", "prefill:2048", "decode:4096:32"};
}

using Samples = std::map<std::string, std::vector<double>>;

struct Sides {
  Samples upstream;
  Samples tiles;
};

Status run_side(std::vector<std::string> command, const VersusArguments& arguments, const std::string& label,
                Samples& samples, const CancelFlag& cancel) {
  command.push_back(arguments.model);
  command.push_back(std::to_string(arguments.threads));
  command.push_back(arguments.quick ? "1024" : "4352");
  for (const std::string& step : steps(arguments.quick)) command.push_back(step);
  if (label == "tiles" && !arguments.tile_cache.empty()) {
    command.push_back("--tile-cache");
    command.push_back(arguments.tile_cache);
  }
  return bench::run_child(
      command,
      [&](std::string_view line) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object() || !json.contains("name") || !json.contains("value")) return;
        const std::string name = json["name"].get<std::string>();
        const double value = json["value"].get<double>();
        samples[name].push_back(value);
        std::fprintf(stderr, "  %-8s %-16s %.1f\n", label.c_str(), name.c_str(), value);
      },
      &cancel);
}

// "Load" is compared with the file in the page cache and memory at hand, for both sides alike.
void settle(const std::vector<std::string>& parts, std::uint64_t memory_bytes) {
  bench::touch_memory(memory_bytes);
  std::vector<char> buffer(std::size_t{4} << 20);
  for (const std::string& part : parts) {
    std::ifstream file(part, std::ios::binary);
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
    }
  }
}

struct Report {
  Sides sides;
  double plain_read_gbps = 0;
  double decode_share = 0;
  double worst_variation = 0;
  std::string noisiest;
};

void find_variation(const Samples& samples, const std::string& side, Report& report) {
  for (const Figure& figure : figures()) {
    const auto found = samples.find(figure.sample);
    if (found == samples.end()) continue;
    const double variation = bench::coefficient_of_variation(found->second);
    if (variation <= report.worst_variation) continue;
    report.worst_variation = variation;
    report.noisiest = side + " " + figure.key;
  }
}

Json to_json(const VersusArguments& arguments, const Report& report) {
  Json ratios, upstream, tiles, spread;
  for (const Figure& figure : figures()) {
    const auto a = report.sides.tiles.find(figure.sample);
    const auto b = report.sides.upstream.find(figure.sample);
    if (a == report.sides.tiles.end() || b == report.sides.upstream.end()) continue;
    const bench::Ratio ratio = bench::paired_ratio(a->second, b->second);
    ratios[figure.key] = ratio.median;
    spread[figure.key] = {ratio.low, ratio.high};
    upstream[figure.key] = b->second;
    tiles[figure.key] = a->second;
  }
  return {{"model", std::filesystem::path(arguments.model).filename().string()},
          {"threads", arguments.threads},
          {"repetitions", arguments.repetitions},
          {"ratios", ratios},
          {"ratio_spread", spread},
          {"upstream", upstream},
          {"tiles", tiles},
          {"plain_read_gbps", report.plain_read_gbps},
          {"decode_bandwidth_share", report.decode_share},
          {"worst_variation", report.worst_variation},
          {"load_average", read_machine().load_average}};
}

void print_table(const Report& report) {
  fmt::print("{:<14} {:>12} {:>12}        {:>6}  {}\n", "", "upstream", "tiles", "ratio", "pairs");
  for (const Figure& figure : figures()) {
    const auto a = report.sides.tiles.find(figure.sample);
    const auto b = report.sides.upstream.find(figure.sample);
    if (a == report.sides.tiles.end() || b == report.sides.upstream.end()) continue;
    const bench::Ratio ratio = bench::paired_ratio(a->second, b->second);
    fmt::print("{:<14} {:>12.1f} {:>12.1f} {:<6} {:>6.2f}x  {:.2f} to {:.2f}\n", figure.key,
               bench::median(b->second) * figure.scale, bench::median(a->second) * figure.scale, figure.unit,
               ratio.median, ratio.low, ratio.high);
  }
  fmt::print("plain read {:.1f} GB/s; decode at depth 0 reads the weights at {:.0f} % of it\n", report.plain_read_gbps,
             report.decode_share * 100);
  fmt::print("largest variation {:.1f} % ({})\n", report.worst_variation * 100, report.noisiest);
}

Status versus(VersusArguments arguments) {
  std::uint64_t weight_bytes = 0;
  std::vector<std::string> parts;
  {
    KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(arguments.model));
    weight_bytes = file.tensor_bytes();
    parts = file.paths();
  }
  const std::string self = bench::own_program_path();
  const std::string peer = (std::filesystem::path(self).parent_path() / "kazeia-upstream-peer").string();
  if (!std::filesystem::exists(peer)) {
    return Error(ErrorCode::kFile, "the upstream side of the comparison is not built",
                 "Run `make versus`, which builds kazeia-upstream-peer beside this program");
  }
  const MachineFacts machine = read_machine();
  if (arguments.threads <= 0) arguments.threads = plan::default_threads(machine);
  if (machine.load_average > 0.5) {
    std::fprintf(stderr, "kazeia: the load average is %.1f; other programs disturb this measurement\n",
                 machine.load_average);
  }
  const CancelFlag& cancel = catch_interrupts(SecondInterrupt::kEndsProcess);

  Report report;
  // What either side may need at its peak, so that neither pays for memory that the machine has lent out meanwhile.
  const std::uint64_t touched = std::min(2 * weight_bytes + kGiB, machine.available_memory_bytes / 2);
  for (int i = 0; i < arguments.repetitions; ++i) {
    std::fprintf(stderr, "repetition %d of %d\n", i + 1, arguments.repetitions);
    // A shared machine's bandwidth changes by the minute: the best of all repetitions is its limit.
    report.plain_read_gbps = std::max(report.plain_read_gbps, bench::plain_read_gbps(arguments.threads, kReadBytes, 3));
    settle(parts, touched);
    KAZEIA_TRY(run_side({peer}, arguments, "upstream", report.sides.upstream, cancel));
    settle(parts, touched);
    KAZEIA_TRY(run_side({self, "probe"}, arguments, "tiles", report.sides.tiles, cancel));
  }
  const double decode = bench::median(report.sides.tiles["decode_0"]);
  if (report.plain_read_gbps > 0) {
    report.decode_share = decode * static_cast<double>(weight_bytes) / (report.plain_read_gbps * 1e9);
  }
  find_variation(report.sides.upstream, "upstream", report);
  find_variation(report.sides.tiles, "tiles", report);

  if (report.worst_variation > kMostVariation && !arguments.accept_noise) {
    return Error(ErrorCode::kEngine,
                 fmt::format("{} varied by {:.1f} % between repetitions, more than the {:.0f} % that may be reported",
                             report.noisiest, report.worst_variation * 100, kMostVariation * 100),
                 "Close other programs and repeat, or accept noisy figures with --accept-noise");
  }
  if (arguments.json) {
    fmt::print("{}\n", to_json(arguments, report).dump(2));
  } else {
    print_table(report);
  }
  return {};
}

}  // namespace

void add_versus(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<VersusArguments>();
  CLI::App* verb = app.add_subcommand(
      "versus", "Compare speed and memory with llama.cpp's own default CPU configuration, alternately, in one run.");
  verb->add_option("MODEL", arguments->model, "GGUF file")->required();
  verb->add_option("--threads", arguments->threads, "Threads of both sides (default: the performance cores)")
      ->check(CLI::Range(1, 256));
  verb->add_option("--repetitions", arguments->repetitions, "Pairs of processes (default 3)")->check(CLI::Range(1, 50));
  verb->add_flag("--quick", arguments->quick, "Short prompts and shallow decode only");
  verb->add_flag("--accept-noise", arguments->accept_noise, "Report even if figures vary by more than 5 %");
  verb->add_option("--tile-cache", arguments->tile_cache, "Folder with packed tiles for our side");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->footer("About 4 minutes a repetition for a 4B model on two cores; --quick takes one.");
  verb->callback([arguments, &action] { action = [arguments] { return versus(*arguments); }; });
}

}  // namespace kazeia::cli
