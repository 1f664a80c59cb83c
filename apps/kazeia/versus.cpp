// `kazeia versus`: upstream's default CPU configuration against the tiles, on this machine, in one run.
//
// Every repetition is a pair of fresh processes, upstream first, then tiles, asked for the same steps on the same
// number of threads, by the protocol of bench/protocol.h. The quoted ratio is the median over the pairs.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "bench/bandwidth.h"
#include "bench/child.h"
#include "bench/protocol.h"
#include "bench/settle.h"
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

using bench::SampleTable;

struct Report {
  SampleTable upstream;
  SampleTable tiles;
  std::string disturbance;
  double plain_read_gbps = 0;
  double decode_share = 0;
  double worst_variation = 0;
  std::string noisiest;
};

// What either side is asked; only the program in front of it differs.
std::vector<std::string> command(std::vector<std::string> program, const VersusArguments& arguments) {
  program.push_back(arguments.model);
  program.push_back(std::to_string(arguments.threads));
  program.push_back(arguments.quick ? "1024" : "4352");
  for (const std::string& step : steps(arguments.quick)) program.push_back(step);
  return program;
}

void find_variation(const SampleTable& samples, const std::string& side, Report& report) {
  for (const Figure& figure : figures()) {
    const std::vector<double>* found = samples.find(figure.sample);
    if (found == nullptr) continue;
    const double variation = bench::coefficient_of_variation(*found);
    if (variation <= report.worst_variation) continue;
    report.worst_variation = variation;
    report.noisiest = side + " " + figure.key;
  }
}

Json to_json(const VersusArguments& arguments, const Report& report) {
  Json ratios, upstream, tiles, spread;
  for (const Figure& figure : figures()) {
    const std::vector<double>* a = report.tiles.find(figure.sample);
    const std::vector<double>* b = report.upstream.find(figure.sample);
    if (a == nullptr || b == nullptr) continue;
    const bench::Ratio ratio = bench::paired_ratio(*a, *b);
    ratios[figure.key] = ratio.median;
    spread[figure.key] = {ratio.low, ratio.high};
    upstream[figure.key] = *b;
    tiles[figure.key] = *a;
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
          {"disturbance", report.disturbance},
          {"load_average", read_machine().load_average}};
}

void print_table(const Report& report) {
  fmt::print("{:<14} {:>12} {:>12}        {:>6}  {}\n", "", "upstream", "tiles", "ratio", "pairs");
  for (const Figure& figure : figures()) {
    const std::vector<double>* a = report.tiles.find(figure.sample);
    const std::vector<double>* b = report.upstream.find(figure.sample);
    if (a == nullptr || b == nullptr) continue;
    const bench::Ratio ratio = bench::paired_ratio(*a, *b);
    fmt::print("{:<14} {:>12.1f} {:>12.1f} {:<6} {:>6.2f}x  {:.2f} to {:.2f}\n", figure.key,
               bench::median(*b) * figure.scale, bench::median(*a) * figure.scale, figure.unit, ratio.median, ratio.low,
               ratio.high);
  }
  fmt::print("plain read {:.1f} GB/s; decode at depth 0 reads the weights at {:.0f} % of it\n", report.plain_read_gbps,
             report.decode_share * 100);
  fmt::print("largest variation {:.1f} % ({})\n", report.worst_variation * 100, report.noisiest);
  if (!report.disturbance.empty()) fmt::print("disturbed: {}\n", report.disturbance);
}

Result<Report> measure(const std::vector<bench::Configuration>& sides, const VersusArguments& arguments,
                       const MachineFacts& machine, std::uint64_t weight_bytes, const std::vector<std::string>& parts,
                       const CancelFlag& cancel) {
  Report report;
  bench::ProtocolOptions options;
  options.least_repetitions = options.most_repetitions = arguments.repetitions;
  const std::uint64_t memory_bytes = bench::memory_to_settle(weight_bytes, machine.available_memory_bytes);
  options.prepare = [&] { bench::settle(parts, memory_bytes); };
  bench::ProtocolEvents events;
  events.on_repetition = [&](int repetition) {
    std::fprintf(stderr, "repetition %d of %d\n", repetition + 1, arguments.repetitions);
    // A shared machine's bandwidth changes by the minute: the best of all repetitions is its limit.
    report.plain_read_gbps = std::max(report.plain_read_gbps, bench::plain_read_gbps(arguments.threads, kReadBytes, 3));
  };
  events.on_sample = [](const std::string& label, const std::string& name, double value) {
    std::fprintf(stderr, "  %-8s %-16s %.1f\n", label.c_str(), name.c_str(), value);
  };
  events.on_remark = [](const std::string& sentence) { std::fprintf(stderr, "kazeia: %s\n", sentence.c_str()); };
  bench::MachineReader reader;
  KAZEIA_ASSIGN(bench::Measurement measurement,
                bench::measure(sides, options, bench::real_seams(reader), events, &cancel));
  report.upstream = std::move(measurement.sides[0].samples);
  report.tiles = std::move(measurement.sides[1].samples);
  report.disturbance = std::move(measurement.disturbance);
  const std::vector<double>* decode = report.tiles.find("decode_0");
  if (decode != nullptr && report.plain_read_gbps > 0) {
    report.decode_share = bench::median(*decode) * static_cast<double>(weight_bytes) / (report.plain_read_gbps * 1e9);
  }
  find_variation(report.upstream, "upstream", report);
  find_variation(report.tiles, "tiles", report);
  return report;
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
  const CancelFlag& cancel = catch_stops(SecondInterrupt::kEndsProcess);

  std::vector<std::string> tiles = command({self, "probe"}, arguments);
  if (!arguments.tile_cache.empty()) {
    tiles.emplace_back("--tile-cache");
    tiles.push_back(arguments.tile_cache);
  }
  KAZEIA_ASSIGN(Report report, measure({{"upstream", command({peer}, arguments), {}}, {"tiles", tiles, {}}}, arguments,
                                       machine, weight_bytes, parts, cancel));
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
