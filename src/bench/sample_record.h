// Records for tests, as a measuring verb makes them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/record.h"
#include "bench/statistics.h"

namespace kazeia::bench {

inline Figure sample_figure(std::string name, std::vector<double> samples, std::string unit = "tok/s",
                            bool higher_is_better = true) {
  Figure figure{.name = std::move(name), .unit = std::move(unit), .higher_is_better = higher_is_better, .samples = {}};
  figure.samples = std::move(samples);
  summarise(figure);
  return figure;
}

inline Record sample_record(std::vector<Figure> figures, std::string time = "2026-11-30T23:10:05Z") {
  Record record;
  record.time = std::move(time);
  record.kind = "bench";
  record.command = {"kazeia", "bench", "model.gguf", "--threads", "2"};
  record.commit = "0123456789abcdef0123456789abcdef01234567";
  record.engine_version = "0.1.0";
  record.upstream_version = "b6000";
  record.compiler = "GNU 12.2.0";
  record.flags = "-O3 -DNDEBUG";
  record.machine = {"1a2b3c4d", "Made Up 3000, 2 cores, 24 GiB", "Linux 6.1 x86_64"};
  record.model = {"model.gguf", "00112233445566778899aabbccddeeff", "qwen3", {{"q4_0", 1'000'000}, {"f32", 4096}}};
  record.settings = {{"context", "4096"}, {"threads", "2"}};
  record.figures = std::move(figures);
  record.moments = {{.seconds = 0.5, .load_average = 0.25, .temperature_c = 41.5, .free_memory_bytes = 20'000'000'000},
                    {.seconds = 30, .foreign_cpu = 0.02, .clock_mhz = 2600, .throttled = true}};
  seal(record);
  return record;
}

inline Record sample_record() {
  return sample_record({sample_figure("decode_4096", {9.61, 9.58, 9.66, 9.6, 9.63}),
                        sample_figure("load_ms", {812.5, 809.25, 815}, "ms", /*higher_is_better=*/false)});
}

// Normally distributed; `noise` is the standard deviation as a fraction of `centre`.
inline std::vector<double> noisy_samples(double centre, double noise, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> distribution(centre, noise * centre);
  std::vector<double> samples(count);
  for (double& sample : samples) sample = distribution(random);
  return samples;
}

}  // namespace kazeia::bench
