"""Looks at what `kazeia report` makes of made-up ledgers, in headless Chromium. Screenshots stay in the build folder."""

import os
import pathlib
import shutil
import subprocess
import unittest

from chromium import Chromium

PROGRAM = os.environ.get("KAZEIA_PROGRAM", "build/release/kazeia")
SAMPLE = os.environ.get("KAZEIA_SAMPLE_LEDGER", "build/release/tests/sample_ledger")
FOLDER = pathlib.Path(os.environ.get("KAZEIA_REPORT_FOLDER", "build/release/report")).resolve()

# A tablet on its side and upright, and a telephone.
SIZES = {"landscape": (1280, 800), "portrait": (800, 1280), "small": (390, 844)}

OPEN_ALL = "for (const part of document.querySelectorAll('details')) part.open = true"
# What sticks out of the page to the side, unless its own box scrolls.
OVERFLOW = """
(() => {
  const outside = [];
  for (const element of document.querySelectorAll('body *')) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && box.right > innerWidth + 1 && !element.closest('.scroll') && !element.closest('svg'))
      outside.push(element.tagName + ' ' + element.className + ' ' + box.right);
  }
  if (document.documentElement.scrollWidth > innerWidth) outside.push('the page: ' + document.documentElement.scrollWidth);
  return outside;
})()
"""
# Of each chart: how many points can be seen, and which stick out of it.
CHARTS = """
[...document.querySelectorAll('.chart')].map((chart) => {
  const frame = chart.getBoundingClientRect();
  const points = [...chart.querySelectorAll('.point .mark, .point rect')].map((point) => point.getBoundingClientRect());
  const seen = points.filter((box) => box.width > 0 && box.height > 0);
  const outside = seen.filter((box) => box.left < frame.left - 8 || box.right > frame.right + 8 ||
                                       box.top < frame.top - 8 || box.bottom > frame.bottom + 8);
  return {name: chart.getAttribute('aria-label') || chart.className, seen: seen.length, outside: outside.length};
})
"""
SMALLEST_TEXT = """
Math.min(...[...document.querySelectorAll('.page *')].filter((element) => !element.closest('svg') &&
  [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((element) => parseFloat(getComputedStyle(element).fontSize)))
"""
SMALL_TARGETS = """
[...document.querySelectorAll('nav a, summary, .toggle')].map((element) => element.getBoundingClientRect())
  .filter((box) => box.height < 44).length
"""
# The contrast of text to its background, as accessibility guidelines compute it.
LEAST_CONTRAST = """
(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (!colour.endsWith(', 0)') && colour !== 'transparent') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = 21;
  for (const element of document.querySelectorAll('.page *')) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (element.tagName === 'title') continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(element.closest('svg') ? style.fill : style.color), light(behind(element))];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()
"""
PAPER = "getComputedStyle(document.querySelector('.page')).backgroundColor"


def report(ledger):
    page = FOLDER / f"{ledger}.html"
    subprocess.run([PROGRAM, "report", str(page), "--ledger", str(FOLDER / ledger)], check=True, capture_output=True)
    return page.as_uri()


class ReportInABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        subprocess.run([SAMPLE, str(FOLDER)], check=True)
        cls.page = report("ledger")
        cls.hostile = report("hostile")
        cls.browser = cls.enterClassContext(Chromium())
        print(f"screenshots: {FOLDER}", flush=True)

    def open(self, url, size, dark):
        """Nothing may be said, and nothing but the page asked for."""
        events = self.browser.open(url, *SIZES[size], dark)
        self.expect_quiet(events, url)

    def expect_quiet(self, events, url):
        loud = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        self.assertEqual([event for event in events if event["method"] in loud], [])
        asked = [event["params"]["request"]["url"] for event in events
                 if event["method"] == "Network.requestWillBeSent"]
        self.assertEqual([other for other in asked if other not in (url, "data:,")], [])

    def test_shows_every_chart_in_both_colours_on_every_screen(self):
        papers = {}
        for size in SIZES:
            for dark in (False, True):
                name = f"{size}-{'dark' if dark else 'light'}"
                with self.subTest(name):
                    self.open(self.page, size, dark)
                    self.browser.screenshot(FOLDER / f"{name}.png")
                    self.browser.screenshot(FOLDER / f"{name}-whole.png", whole=True)
                    self.browser.value_of(OPEN_ALL)
                    self.assertEqual(self.browser.value_of(OVERFLOW), [])
                    charts = self.browser.value_of(CHARTS)
                    self.assertGreaterEqual(len(charts), 20)
                    self.assertEqual([chart for chart in charts if chart["seen"] == 0 or chart["outside"] > 0], [])
                    self.assertGreaterEqual(self.browser.value_of(SMALLEST_TEXT), 16)
                    self.assertEqual(self.browser.value_of(SMALL_TARGETS), 0)
                    self.assertGreaterEqual(self.browser.value_of(LEAST_CONTRAST), 4.5)
                    papers[name] = self.browser.value_of(PAPER)
        self.assertNotEqual(papers["portrait-light"], papers["portrait-dark"])

    def test_changes_its_colours_at_a_touch(self):
        for dark in (False, True):
            self.open(self.page, "portrait", dark)
            before = self.browser.value_of(PAPER)
            self.browser.value_of("document.querySelector('.toggle').click()")
            self.assertNotEqual(self.browser.value_of(PAPER), before)
            self.assertGreaterEqual(self.browser.value_of(LEAST_CONTRAST), 4.5)
            self.browser.value_of("document.querySelector('.toggle').click()")
            self.assertEqual(self.browser.value_of(PAPER), before)

    def test_leads_from_a_point_to_its_record(self):
        self.open(self.page, "landscape", False)
        self.browser.value_of("document.querySelector('svg.chart a .mark').parentElement.parentElement"
                              ".dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        self.assertTrue(self.browser.value_of("location.hash.startsWith('#r-')"))
        self.assertEqual(self.browser.value_of("document.querySelector(':target').tagName"), "TR")

    def test_runs_and_loads_nothing_that_a_record_brings(self):
        for size in SIZES:
            self.open(self.hostile, size, True)
            self.browser.value_of(OPEN_ALL)
            self.browser.screenshot(FOLDER / f"hostile-{size}.png")
            self.assertEqual(self.browser.value_of("document.querySelectorAll('script, img, [onload], [onerror]').length"), 0)
            self.assertEqual(self.browser.value_of(OVERFLOW), [])
            self.assertEqual([chart for chart in self.browser.value_of(CHARTS) if chart["outside"] > 0], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
