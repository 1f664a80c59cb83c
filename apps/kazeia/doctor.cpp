// `kazeia doctor`: what this machine is, and what is wrong with it.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "doctor_npu.h"
#include "engine/backend.h"
#include "plan/diagnosis.h"
#include "plan/threads.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

// CPUs that are alike, fastest first.
struct Cluster {
  std::uint32_t capacity = 0;
  std::uint64_t max_khz = 0;
  std::vector<int> cores;
};

std::vector<Cluster> clusters(const MachineFacts& machine) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<int>> alike;
  for (const CoreFacts& core : machine.cores) alike[{core.capacity, core.max_khz}].push_back(core.id);
  std::vector<Cluster> found;
  found.reserve(alike.size());
  for (const auto& [kind, cores] : alike) found.push_back({kind.first, kind.second, cores});
  std::reverse(found.begin(), found.end());
  return found;
}

// "0-3, 8"
std::string ranges(const std::vector<int>& ids) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first < ids.size();) {
    std::size_t last = first;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    parts.push_back(first == last ? std::to_string(ids[first]) : fmt::format("{}-{}", ids[first], ids[last]));
    first = last + 1;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string describe(const Cluster& cluster) {
  std::string text = fmt::format("CPU {}", ranges(cluster.cores));
  if (cluster.max_khz > 0) text += fmt::format(" at up to {:.2f} GHz", static_cast<double>(cluster.max_khz) / 1e6);
  if (cluster.capacity > 0) text += fmt::format(" (capacity {} of 1024)", cluster.capacity);
  return text;
}

std::string or_unknown(const std::string& text) {
  return text.empty() ? "unknown" : text;
}

std::string memory_line(const MachineFacts& machine) {
  if (machine.total_memory_bytes == 0) return "unknown";
  std::string text = fmt::format("{} free of {}", format_bytes(machine.available_memory_bytes),
                                 format_bytes(machine.total_memory_bytes));
  if (machine.cgroup_memory_limit_bytes > 0) text += ", the container's limit";
  return text + (machine.swap_total_bytes == 0
                     ? ", no swap"
                     : fmt::format(", swap {} free of {}", format_bytes(machine.swap_free_bytes),
                                   format_bytes(machine.swap_total_bytes)));
}

std::string cache_line(const MachineFacts& machine) {
  std::vector<std::string> parts;
  std::map<std::pair<int, std::string>, std::pair<int, std::uint64_t>> kinds;  // count and size of each
  for (const CacheFacts& cache : machine.caches) {
    if (cache.type == "Instruction") continue;
    auto& [count, bytes] = kinds[{cache.level, cache.type}];
    ++count;
    bytes = std::max(bytes, cache.bytes);
  }
  parts.reserve(kinds.size());
  for (const auto& [kind, sizes] : kinds) {
    parts.push_back(fmt::format("L{} {} x {}", kind.first, sizes.first, format_bytes(sizes.second)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string as_text(const MachineFacts& machine, const plan::ThreadPlan& threads,
                    const std::vector<plan::Problem>& problems) {
  std::string text;
  const auto row = [&text](const char* name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  row("processor", or_unknown(machine.cpu_model));
  row("system", or_unknown(machine.kernel));
  row("cores", machine.cores.empty()
                   ? "unknown"
                   : fmt::format("{} CPUs on {} physical cores usable, of {} CPUs", machine.allowed_cores(),
                                 machine.allowed_physical_cores(), machine.cores.size()));
  for (const Cluster& cluster : clusters(machine)) row("", describe(cluster));
  if (machine.cgroup_cpu_quota > 0) row("", fmt::format("container limit: {:.2g} CPUs", machine.cgroup_cpu_quota));
  if (!machine.caches.empty()) row("caches", cache_line(machine));
  row("instructions", or_unknown(fmt::format("{}", fmt::join(machine.instruction_sets, " "))));
  row("memory", memory_line(machine));
  row("pages",
      fmt::format("{}, transparent huge pages: {}", format_bytes(machine.page_bytes), or_unknown(machine.huge_pages)));
  row("load", machine.load_average < 0 ? "unknown" : fmt::format("{:.2f} over the last minute", machine.load_average));
  row("threads", fmt::format("{} by default ({})", threads.threads, threads.reason));
  row("backends", fmt::format("{}", fmt::join(backend_names(), ", ")));
  row("engine", fmt::format("kazeia {}, {}", KAZEIA_VERSION, upstream_version()));
  text += "\n";
  if (problems.empty()) text += "Nothing is wrong.\n";
  for (const plan::Problem& problem : problems) text += fmt::format("! {}.\n  {}.\n", problem.sentence, problem.next);
  return text;
}

std::string as_json(const MachineFacts& machine, const plan::ThreadPlan& threads,
                    const std::vector<plan::Problem>& problems) {
  Json json;
  json["processor"] = machine.cpu_model;
  json["kernel"] = machine.kernel;
  json["cpus"] = machine.cores.size();
  json["usable_cpus"] = machine.allowed_cores();
  json["usable_physical_cores"] = machine.allowed_physical_cores();
  json["cpu_quota"] = machine.cgroup_cpu_quota > 0 ? Json(machine.cgroup_cpu_quota) : Json(nullptr);
  json["clusters"] = Json::array();
  for (const Cluster& cluster : clusters(machine)) {
    json["clusters"].push_back({{"cpus", cluster.cores}, {"capacity", cluster.capacity}, {"max_khz", cluster.max_khz}});
  }
  json["caches"] = Json::array();
  for (const CacheFacts& cache : machine.caches) {
    json["caches"].push_back(
        {{"level", cache.level}, {"type", cache.type}, {"bytes", cache.bytes}, {"cpus", cache.cores}});
  }
  json["instruction_sets"] = machine.instruction_sets;
  json["total_memory_bytes"] = machine.total_memory_bytes;
  json["available_memory_bytes"] = machine.available_memory_bytes;
  json["memory_limit_bytes"] =
      machine.cgroup_memory_limit_bytes > 0 ? Json(machine.cgroup_memory_limit_bytes) : Json(nullptr);
  json["swap_total_bytes"] = machine.swap_total_bytes;
  json["swap_free_bytes"] = machine.swap_free_bytes;
  json["page_bytes"] = machine.page_bytes;
  json["huge_pages"] = machine.huge_pages;
  json["load_average"] = machine.load_average >= 0 ? Json(machine.load_average) : Json(nullptr);
  json["default_threads"] = threads.threads;
  json["default_threads_reason"] = threads.reason;
  json["backends"] = backend_names();
  json["version"] = KAZEIA_VERSION;
  json["upstream"] = upstream_version();
  json["problems"] = Json::array();
  for (const plan::Problem& problem : problems) {
    json["problems"].push_back({{"name", problem.name}, {"sentence", problem.sentence}, {"next", problem.next}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status doctor(bool json) {
  const MachineFacts machine = read_machine();
  const plan::ThreadPlan threads = plan::default_thread_plan(machine);
  std::vector<plan::Problem> problems = plan::diagnose(machine);
  if (backend_names().empty()) {
    problems.insert(problems.begin(), {"no_backend", "the inference library has no backend, so no model can run",
                                       "Build again with `make setup` and `make build`"});
  }
  Output output;
  return output.write(json ? as_json(machine, threads, problems) : as_text(machine, threads, problems));
}

Status doctor_npu(const NpuQuestions& questions, bool json) {
  KAZEIA_ASSIGN(const NpuReport report, examine_npu(questions));
  Output output;
  KAZEIA_TRY(output.write(json ? as_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                               : as_text(report)));
  if (report.usable) return {};
  return Error(ErrorCode::kUnsupported, report.verdict, "The CPU does everything");
}

struct DoctorArguments {
  bool json = false;
  bool npu = false;
  NpuQuestions questions;
};

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* verb = app.add_subcommand("doctor", "Tell what this machine is and what is wrong with it");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  CLI::Option* npu = verb->add_flag("--npu", arguments->npu,
                                    "Examine the NPU: driver, session, every kind of operation against the CPU, and\n"
                                    "with --model also the layout of the weights, whole prompts and the speed");
  verb->add_option("--model", arguments->questions.model, "With --npu: a GGUF file to examine it with")
      ->needs(npu)
      ->type_name("MODEL");
  verb->add_option("--threads", arguments->questions.threads, "With --npu: of the CPU (default: performance cores)")
      ->needs(npu)
      ->check(CLI::Range(1, 512));
  verb->add_option("--profile", arguments->questions.profile_file,
                   "With --npu: the profile to read, and with --save to write")
      ->needs(npu)
      ->type_name("FILE");
  verb->add_flag("--save", arguments->questions.save,
                 "With --npu and --model: remember from which width on the NPU pays")
      ->needs(npu);
  verb->callback([arguments, &action] {
    action = [arguments] {
      return arguments->npu ? doctor_npu(arguments->questions, arguments->json) : doctor(arguments->json);
    };
  });
}

}  // namespace kazeia::cli
