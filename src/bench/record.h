// One measurement with everything that is needed to run it again and to judge it. A record never changes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kazeia::bench {

// One figure: what was sampled, and what may be quoted of it.
struct Figure {
  std::string name;  // "decode_4096", "prefill_512", "load_ms", "peak_rss_bytes"
  std::string unit;  // "tok/s", "ms", "bytes", "J/tok", "ratio"
  bool higher_is_better = true;
  std::vector<double> samples;  // one per process or repetition, in the order of measuring
  double median = 0;
  double low = 0;  // 95 % bootstrap interval of the median
  double high = 0;
  double variation = 0;  // coefficient of variation, 0.05 = 5 %

  bool operator==(const Figure&) const = default;
};

// What the machine was like at one moment. Values that it does not tell are 0.
struct MachineMoment {
  double seconds = 0;  // since the run began
  double load_average = 0;
  double foreign_cpu = 0;  // share of one core that other processes used since the last moment
  double temperature_c = 0;
  double clock_mhz = 0;  // mean over the cores
  std::uint64_t free_memory_bytes = 0;
  bool throttled = false;

  bool operator==(const MachineMoment&) const = default;
};

struct MachineIdentity {
  std::string id;      // 8 hex digits of what does not change: CPU, cores, memory, kernel's machine
  std::string name;    // "AMD EPYC 9R14, 2 cores, 24 GiB"
  std::string system;  // "Linux 6.1 x86_64"

  bool operator==(const MachineIdentity&) const = default;
};

struct ModelIdentity {
  std::string file;  // name without folder
  std::string hash;  // 32 hex digits
  std::string architecture;
  std::map<std::string, std::uint64_t> tensor_bytes;  // by type

  bool operator==(const ModelIdentity&) const = default;
};

struct Record {
  std::string id;    // 12 hex digits of the rest
  std::string time;  // UTC, "2026-11-30T23:10:05Z"
  std::string kind;  // "bench", "baseline", "routes", "soak", "turns", "tune"
  std::vector<std::string> command;
  std::string commit;  // 40 hex digits, or empty
  bool dirty = false;
  std::string engine_version;
  std::string upstream_version;
  std::string compiler;
  std::string flags;
  MachineIdentity machine;
  ModelIdentity model;
  std::map<std::string, std::string> settings;  // "threads": "2", "context": "4096", "kv": "f16", ...
  std::vector<Figure> figures;
  std::vector<MachineMoment> moments;
  std::string disturbance;  // not empty: what disturbed it; such a record is not accepted as a result
  std::string note;

  const Figure* figure(std::string_view name) const;  // null if there is none
  bool operator==(const Record&) const = default;
};

// One line of JSON without line break; from_json refuses unknown fields and values out of range (kFile).
std::string to_json(const Record& record);
Result<Record> record_from_json(std::string_view line);
// Fills `id` from everything else.
void seal(Record& record);

}  // namespace kazeia::bench
