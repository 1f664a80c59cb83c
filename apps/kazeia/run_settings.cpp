#include "run_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/cpu_list.h"
#include "base/machine.h"
#include "base/units.h"
#include "bench/identity.h"
#include "npu/profile.h"
#include "plan/threads.h"
#include "session/directory.h"

namespace kazeia::cli {
namespace {

constexpr std::uint64_t kMostContextTokens = (1U << 31) - 256;

Error no_value(const std::string& text, const std::string& expected) {
  return Error(ErrorCode::kUsage, fmt::format("'{}' is not a value of it", text), fmt::format("Give {}", expected));
}

template <typename Number, typename Field>
Status set_number(Field& field, const std::string& text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < low || number > high) {
    return no_value(text, fmt::format("a number from {} to {}", low, high));
  }
  field = static_cast<Number>(number);
  return {};
}

Status set_switch(bool& field, const std::string& text) {
  if (text != "on" && text != "off") return no_value(text, "on or off");
  field = text == "on";
  return {};
}

std::string switch_text(bool value) {
  return value ? "on" : "off";
}

Status set_cores(ModelFlags& flags, const std::string& text) {
  if (text == "all") {
    flags.cores.clear();
    return {};
  }
  KAZEIA_ASSIGN(flags.cores, parse_cpu_list(text));
  return {};
}

Status set_poll(ModelFlags& flags, const std::string& text) {
  if (text != "off") {
    const Status set = set_number<int>(flags.poll, text, 0, 100);
    return set.ok() ? Status() : no_value(text, "off, or a number from 0 to 100");
  }
  flags.poll.reset();
  return {};
}

Status set_kv(ModelFlags& flags, const std::string& text) {
  const auto type = kv_type_of_name(text);
  if (!type) return no_value(text, "f16, q8_0 or q4_0");
  flags.kv_type = *type;
  return {};
}

Status set_attention(ModelFlags& flags, const std::string& text) {
  const auto kernels = attention_of_name(text);
  if (!kernels) return no_value(text, "upstream or kazeia");
  flags.attention = *kernels;
  return {};
}

Status set_route(ModelFlags& flags, const std::string& text) {
  const auto route = route_of_name(text);
  if (!route) return no_value(text, "auto, cpu, npu-prefill or npu-only");
  flags.route.route = *route;
  return {};
}

Status set_checkpoint_memory(ModelFlags& flags, const std::string& text) {
  std::string bytes = text;
  const std::string wrong = CLI::AsSizeValue(/*kb_is_1000=*/false)(bytes);
  if (!wrong.empty()) return no_value(text, "a size, as in 256MB");
  const Status set = set_number<std::uint64_t>(flags.checkpoint_memory_bytes, bytes, 0, std::uint64_t{1} << 60);
  return set.ok() ? Status() : no_value(text, "a size, as in 256MB");
}

// As set_checkpoint_memory() reads it.
std::string size_text(std::uint64_t bytes) {
  return bytes % kMiB == 0 ? fmt::format("{}MB", bytes / kMiB) : fmt::format("{}B", bytes);
}

std::string threads_text(int threads, const ModelFlags& flags) {
  return std::to_string(threads != 0 ? threads : plan::default_threads(read_machine(), flags.cores));
}

// As the NPU's own profile has it, if nothing else was said.
std::string npu_min_width(const ModelFlags& flags) {
  if (flags.npu_min_width) return std::to_string(*flags.npu_min_width);
  const std::string path = flags.route.remember ? npu::profile_path(flags.route.profile_file) : std::string();
  std::error_code ignored;
  const bool there = !path.empty() && std::filesystem::exists(path, ignored);
  return std::to_string(there ? npu::read_profile(path).profile.prefill_min_tokens : npu::Profile().prefill_min_tokens);
}

// One row for each row of plan::settings().
struct Access {
  std::string_view setting;
  Status (*set)(ModelFlags& flags, const std::string& text);
  std::string (*get)(const ModelFlags& flags);
};

constexpr std::uint64_t kMostThreads = 512;  // upstream's own limit
constexpr std::uint64_t kMostUbatch = 65536;

constexpr std::array<Access, 14> kAccess = {{
    {"prefill_threads",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<int>(flags.prefill_threads, text, 1, kMostThreads);
     },
     [](const ModelFlags& flags) { return threads_text(flags.timeline().prefill_threads, flags); }},
    {"decode_threads",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<int>(flags.decode_threads, text, 1, kMostThreads);
     },
     [](const ModelFlags& flags) { return threads_text(flags.timeline().decode_threads, flags); }},
    {"cores", set_cores,
     [](const ModelFlags& flags) { return flags.cores.empty() ? std::string("all") : cpu_list_text(flags.cores); }},
    {"poll", set_poll,
     [](const ModelFlags& flags) { return flags.poll ? std::to_string(*flags.poll) : std::string("off"); }},
    {"ubatch",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<std::uint32_t>(flags.ubatch_tokens, text, 1, kMostUbatch);
     },
     [](const ModelFlags& flags) { return std::to_string(flags.ubatch_tokens); }},
    {"kv", set_kv, [](const ModelFlags& flags) { return std::string(kv_type_name(flags.kv_type)); }},
    {"flash_attention",
     [](ModelFlags& flags, const std::string& text) { return set_switch(flags.flash_attention, text); },
     [](const ModelFlags& flags) { return switch_text(flags.flash_attention); }},
    {"attention", set_attention, [](const ModelFlags& flags) { return std::string(attention_name(flags.attention)); }},
    {"huge_pages",
     [](ModelFlags& flags, const std::string& text) { return set_switch(flags.weights.huge_pages, text); },
     [](const ModelFlags& flags) { return switch_text(flags.weights.huge_pages); }},
    {"route", set_route, [](const ModelFlags& flags) { return std::string(route_name(flags.route.route)); }},
    {"npu_min_width",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<std::size_t>(flags.npu_min_width, text, 1, kMostUbatch);
     },
     npu_min_width},
    {"checkpoint_spacing",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<std::size_t>(flags.checkpoint_spacing_tokens, text, 0, kMostContextTokens);
     },
     [](const ModelFlags& flags) { return std::to_string(flags.checkpoints().spacing_tokens); }},
    {"checkpoint_memory", set_checkpoint_memory,
     [](const ModelFlags& flags) { return size_text(flags.checkpoints().memory_budget_bytes); }},
    {"context",
     [](ModelFlags& flags, const std::string& text) {
       return set_number<std::uint32_t>(flags.context_tokens, text, 1, kMostContextTokens);
     },
     [](const ModelFlags& flags) { return std::to_string(flags.timeline().context_tokens); }},
}};

const Access* access_to(std::string_view setting) {
  const auto* found =
      std::find_if(kAccess.begin(), kAccess.end(), [&](const Access& access) { return access.setting == setting; });
  return found == kAccess.end() ? nullptr : found;
}

// What the engine would refuse, asked before a choice that nobody asked for makes it do so.
bool go_together(const ModelFlags& flags) {
  if (flags.kv_type != KvType::kF16 && !flags.flash_attention) return false;
  if (flags.cores.empty()) return true;
  const MachineFacts machine = read_machine();
  for (const int core : flags.cores) {
    const bool allowed = std::any_of(machine.cores.begin(), machine.cores.end(),
                                     [&](const CoreFacts& facts) { return facts.id == core && facts.allowed; });
    if (!allowed) return false;
  }
  const TimelineOptions timeline = flags.timeline();
  return std::max(timeline.decode_threads, timeline.prefill_threads) <= static_cast<int>(flags.cores.size());
}

bench::LoadedTunedProfile tuned_profile(const ModelFlags& flags) {
  // What was tuned is the tile layout.
  if (!flags.use_tuned || flags.weights.upstream_layouts) return {};
  const std::string folder = bench::tuned_folder();
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::is_directory(folder, ignored)) return {};
  const Result<std::string> sessions = SessionDirectory::default_root();
  if (!sessions.ok()) return {};
  const std::string hash = Model::remembered_hash(flags.path, *sessions + "/.models");
  if (hash.empty()) return {};
  return bench::read_tuned(folder, bench::machine_identity().id, hash);
}

}  // namespace

Status set_value(ModelFlags& flags, std::string_view setting, const std::string& value) {
  const Access* access = access_to(setting);
  if (access != nullptr) return access->set(flags, value);
  return Error(ErrorCode::kUsage, fmt::format("there is no setting '{}'", setting), "`kazeia why` lists them");
}

std::string value_of(const ModelFlags& flags, std::string_view setting) {
  const Access* access = access_to(setting);
  return access == nullptr ? std::string() : access->get(flags);
}

ResolvedSettings resolve_settings(ModelFlags& flags) {
  ResolvedSettings resolved;
  bench::LoadedTunedProfile loaded = tuned_profile(flags);
  resolved.note = std::move(loaded.note);
  for (const plan::Setting& setting : plan::settings()) {
    SettingInForce in_force;
    in_force.setting = &setting;
    const bench::TunedChoice* choice = loaded.profile ? loaded.profile->find(setting.name) : nullptr;
    if (choice != nullptr) in_force.tuned = *choice;
    if (flags.asked.contains(setting.name)) {
      in_force.origin = Origin::kAsked;
    } else if (choice != nullptr) {
      ModelFlags changed = flags;
      const Status set = set_value(changed, setting.name, choice->value);
      if (set.ok() && go_together(changed)) {
        flags = std::move(changed);
        in_force.origin = Origin::kTuned;
      } else if (!set.ok()) {
        resolved.note = fmt::format("the tuned choice of {} is left out: {}", setting.name, set.error().message());
      }
    }
    resolved.settings.push_back(std::move(in_force));
  }
  // Only now: a choice of cores decides how many threads there are.
  for (SettingInForce& in_force : resolved.settings) in_force.value = value_of(flags, in_force.setting->name);
  return resolved;
}

}  // namespace kazeia::cli
