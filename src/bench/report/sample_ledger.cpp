#include "bench/report/sample_ledger.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/figures.h"
#include "bench/sample_record.h"
#include "bench/slope.h"
#include "bench/statistics.h"

namespace kazeia::bench::report {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

// Every sample of a page has another seed, and always the same.
class Maker {
 public:
  std::vector<double> samples(double centre, double noise = 0.006, std::size_t count = 5) {
    return noisy_samples(centre, noise, count, ++seed_);
  }
  void add(Record& record, const std::string& name, double centre, double noise = 0.006) {
    record.figures.push_back(make_figure(name, samples(centre, noise)));
  }
  // Both sides and their ratio.
  void add_sides(Record& record, const std::string& name, double ours, double theirs, double noise = 0.006) {
    const Figure a = make_figure(name, samples(ours, noise));
    const Figure b = make_figure(name, samples(theirs));
    record.figures.push_back(a);
    record.figures.push_back(make_figure(name, b.samples, "upstream_"));
    record.figures.push_back(make_ratio(name, a, b));
  }

 private:
  std::uint64_t seed_ = 0;
};

Record begin(const std::string& time, const std::string& kind) {
  Record record = sample_record({}, time);
  record.kind = kind;
  record.command = {"kazeia", "bench", "model.gguf"};
  record.engine_version = "0.6.0";
  record.machine = {"1a2b3c4d", "Made Up 3000, 2 cores, 24 GiB", "Linux 6.1 x86_64"};
  record.model = {"qwen3.5-4b-q4_0.gguf",
                  "00112233445566778899aabbccddeeff",
                  "qwen35",
                  {{"Q4_0", 1900 * kMega}, {"Q6_K", 520 * kMega}, {"F32", 12 * kMega}}};
  record.settings = {{"threads", "2"}, {"context", "32832"}, {"kv", "f16"}, {"route", "cpu"}};
  return record;
}

void measure_speeds(Record& record) {
  record.settings["prefill"] = "128,512,1024,2048";
  record.settings["depths"] = "0,1024,4096,8192,16384,32768";
  record.settings["decode_tokens"] = "32";
  record.settings["turns"] = "turn:700:64";
}

Record baseline(Maker& maker) {
  Record record = begin("2026-11-24T09:12:00Z", "baseline");
  measure_speeds(record);
  record.settings["baseline"] = "upstream";
  maker.add_sides(record, "load_ms", 1450, 3900);
  maker.add_sides(record, "prefill_128", 41.2, 33.0);
  maker.add_sides(record, "prefill_512", 44.1, 34.6);
  maker.add_sides(record, "prefill_1024", 43.8, 34.2);
  maker.add_sides(record, "prefill_2048", 43.0, 33.7);
  maker.add_sides(record, "prefill_512_at_4096", 40.4, 31.9);
  maker.add_sides(record, "decode_0", 9.81, 8.62);
  maker.add_sides(record, "decode_1024", 9.74, 8.55);
  maker.add_sides(record, "decode_4096", 9.52, 8.31);
  maker.add_sides(record, "decode_8192", 9.21, 8.02);
  maker.add_sides(record, "decode_16384", 8.63, 7.66, 0.09);
  maker.add_sides(record, "decode_32768", 7.72, 7.81);
  maker.add_sides(record, "peak_rss_bytes", 2.87e9, 3.61e9, 0.001);
  maker.add(record, "ttft_ms", 604);
  maker.add(record, "turn_ttft_ms", 16'200);
  maker.add(record, "turn_decode", 9.6);
  maker.add(record, "turn_peak_rss_bytes", 2.91e9, 0.001);
  return record;
}

Record soak(Maker& maker) {
  constexpr std::size_t kIntervals = 120;
  constexpr double kSeconds = 30;
  Record record = begin("2026-11-25T20:00:00Z", "soak");
  record.settings["context"] = "2048";
  record.settings["soak_seconds"] = "3600";
  std::vector<double> hours;
  std::vector<double> decode = maker.samples(9.7, 0.012, kIntervals);
  std::vector<double> rss = maker.samples(2.81e9, 0.0004, kIntervals);
  record.moments.clear();
  for (std::size_t i = 0; i < kIntervals; ++i) {
    const double seconds = kSeconds * static_cast<double>(i + 1);
    hours.push_back(seconds / 3600);
    decode[i] += 0.25 * std::exp(-seconds / 240);
    rss[i] -= 6e7 * std::exp(-seconds / 180);
    record.moments.push_back({.seconds = 4 + seconds, .load_average = 2});
  }
  const auto slope_of = [&](const std::string& name, const std::string& unit, bool better, std::span<const double> y) {
    const Slope slope = bench::slope(std::span(hours).subspan(12), y.subspan(12));
    return sample_figure(name, {slope.low, slope.value, slope.high}, unit, better);
  };
  record.figures = {make_figure("soak_ttft_ms", maker.samples(2980, 0.014, kIntervals)),
                    make_figure("soak_rss_bytes", rss), make_figure("soak_decode", decode),
                    slope_of("soak_decode_slope", "tok/s/h", true, decode),
                    slope_of("soak_rss_slope_bytes_per_hour", "bytes/h", false, rss)};
  return record;
}

Record routes(Maker& maker) {
  Record record = begin("2026-11-26T08:00:00Z", "routes");
  record.settings.erase("route");
  record.settings["route_cpu"] = "used";
  record.settings["route_npu-prefill"] = "no device";
  record.settings["route_npu-only"] = "no device";
  record.note = "npu-prefill: there is no NPU driver on this machine";
  for (const auto& [name, value] : {std::pair{"cpu_prefill_512", 44.0}, std::pair{"cpu_decode_0", 9.8},
                                    std::pair{"cpu_decode_4096", 9.5}, std::pair{"cpu_peak_rss_bytes", 2.87e9}}) {
    record.figures.push_back(make_figure(name, maker.samples(value)));
  }
  return record;
}

Record tune(Maker& maker) {
  Record record = begin("2026-11-26T10:30:00Z", "tune");
  record.settings["tuned"] = "ubatch";
  record.figures = {sample_figure("ubatch_512_prefill_1024", maker.samples(43.6)),
                    sample_figure("ubatch_1024_prefill_1024", maker.samples(45.2)),
                    sample_figure("ratio_ubatch_1024", maker.samples(1.037, 0.004), "ratio")};
  return record;
}

// The fourth is disturbed, the sixth has changes that are in no commit, and the fifth brings something.
Record history(Maker& maker, int step) {
  Record record = begin(fmt::format("2026-11-{:02}T06:00:00Z", 20 + step), "bench");
  record.commit = fmt::format("{:07x}", 0x3a91c05 + step * 0x6b3d17) + "89abcdef0123456789abcdef012345678";
  record.model = {
      "qwen3-0.6b.gguf", "ffeeddccbbaa99887766554433221100", "qwen3", {{"Q4_0", 340 * kMega}, {"Q6_K", 125 * kMega}}};
  record.settings["context"] = "4672";
  record.settings["prefill"] = "512";
  record.settings["depths"] = "0,1024";
  const double speed = step < 4 ? 1 : 1.06;
  maker.add(record, "load_ms", 402 / speed);
  maker.add(record, "prefill_512", 287 * speed);
  maker.add(record, "decode_0", 58.1 * speed, step == 3 ? 0.03 : 0.006);
  maker.add(record, "decode_1024", 52.4 * speed);
  maker.add(record, "ttft_ms", 96 / speed);
  maker.add(record, "peak_rss_bytes", 6.9e8 - 1.5e7 * step, 0.001);
  maker.add(record, "turn_ttft_ms", 2460 / speed);
  if (step == 3) record.disturbance = "other processes used 0.4 of a core during decode_0";
  record.dirty = step == 5;
  return record;
}

Record of_tablet(Maker& maker) {
  Record record = begin("2026-11-27T12:00:00Z", "bench");
  record.machine = {"9f8e7d6c", "Made Up Tablet, 8 cores, 12 GiB", "Linux 6.1 aarch64"};
  record.engine_version = "0.6.1";
  record.settings["route"] = "npu-prefill";
  record.settings["context"] = "8256";
  measure_speeds(record);
  maker.add(record, "prefill_128", 120);
  maker.add(record, "prefill_512", 310);
  maker.add(record, "prefill_1024", 345);
  maker.add(record, "prefill_2048", 352);
  maker.add(record, "decode_0", 12.4);
  maker.add(record, "decode_1024", 12.3);
  maker.add(record, "decode_4096", 12.0);
  maker.add(record, "decode_8192", 11.6);
  maker.add(record, "ttft_ms", 240);
  maker.add(record, "energy_decode_0", 0.41);
  maker.add(record, "peak_rss_bytes", 2.79e9, 0.001);
  for (const auto& [part, bytes] :
       {std::pair{"weights", 2.43e9}, std::pair{"kv_cache", 2.1e8}, std::pair{"compute", 9.4e7},
        std::pair{"recurrent", 5.2e7}, std::pair{"process", 3.1e7}}) {
    record.figures.push_back(make_figure(fmt::format("plan_{}_bytes", part), {bytes, bytes, bytes}));
  }
  return record;
}

}  // namespace

std::vector<Record> sample_ledger() {
  Maker maker;
  std::vector<Record> records;
  constexpr int kSteps = 7;
  records.reserve(kSteps + 5);
  for (int step = 0; step < kSteps; ++step) records.push_back(history(maker, step));
  records.push_back(baseline(maker));
  records.push_back(soak(maker));
  records.push_back(routes(maker));
  records.push_back(tune(maker));
  records.push_back(of_tablet(maker));
  for (Record& record : records) seal(record);
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.time < b.time; });
  return records;
}

Record hostile_record() {
  const std::string text =
      "\"'><script src=https://example.invalid/a.js>alert(1)</script><img src=x "
      "onerror=alert(1)>&amp;\xE2\x80\xAE\x1b[31m";
  Record record = begin("2026-11-28T12:00:00Z", "bench");
  record.command.push_back(text);
  record.engine_version = record.upstream_version = record.compiler = record.flags = text;
  record.machine = {"0badc0de", text, text};
  record.model.file = "\"'><svg onload=alert(1)><style>@import url(https:example.invalid)<title>.gguf";
  record.model.architecture = text;
  record.model.tensor_bytes[text] = 17;
  for (const char* name : {"threads", "context", "kv", "route", "turns"}) record.settings[name] = text;
  record.settings[text] = text;
  record.note = text;
  // Names of figures have no spaces, and are long.
  const std::string name = "decode_\"><script>alert(1)</script><a/href='javascript:alert(1)'>" + std::string(30, 'w');
  record.figures = {sample_figure("decode_0", {-1e100, 1e100, 1e99}),
                    sample_figure("decode_64", {1, 1, 1}),
                    sample_figure("decode_9223372036854775807", {1e-300, 1e-300, 1e-300}),
                    sample_figure("prefill_1", {0, 0, 0}),
                    sample_figure("prefill_2", {1e-310, 1, 1e100}),
                    sample_figure("peak_rss_bytes", {-5, -5, -5}, "bytes", false),
                    sample_figure("ratio_decode_0", {-1, 1, 1e100}, "ratio"),
                    sample_figure(name, {1, 2, 3}, "</text><script>alert(1)</script>"),
                    sample_figure("ttft_ms", {1e9, 1e9, 1e9}, "ms", false)};
  seal(record);
  return record;
}

}  // namespace kazeia::bench::report
