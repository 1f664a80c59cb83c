#include "doctor_npu.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "engine/backend.h"
#include "npu/guard.h"
#include "npu/profile.h"
#include "terminal.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string failures_sentence(const npu::FailureHistory& failures) {
  if (failures.count == 0) return {};
  return fmt::format("{} failure{} remembered, {} in a row; the last at {}: {}", failures.count,
                     failures.count == 1 ? "" : "s", failures.consecutive, failures.last_time, failures.last_reason);
}

// The classes of which an operation came out wrong.
std::string wrong_operations(const std::vector<npu::OpCheck>& ops) {
  std::string names;
  for (const npu::OpCheck& op : ops) {
    if (op.supported && !op.correct) names += (names.empty() ? "" : ", ") + op.name;
  }
  return names;
}

Status examine_model(const NpuQuestions& questions, NpuReport& report) {
  ModelOptions options;
  options.placement = Placement::kNpu;
  ProgressBar bar("loading");
  options.on_progress = [&bar](float fraction) { bar.update(static_cast<double>(fraction)); };
  Result<std::shared_ptr<const Model>> model = Model::load(questions.model, options);
  bar.clear();
  if (!model.ok()) {
    if (model.error().code() != ErrorCode::kEngine) return model.error();
    report.verdict = model.error().message();
    return {};
  }
  report.checked_matrices = (*model)->npu_placement().checked_matrices;
  KAZEIA_ASSIGN(report.check, check_npu(*model));
  if (!report.check->passed) {
    report.verdict = fmt::format("the NPU must not be used: {}", report.check->finding);
    return {};
  }
  const auto on_width = [](std::size_t width) { fmt::print(stderr, "measuring pieces of {} tokens\n", width); };
  Result<NpuSpeed> speed = measure_npu_speed(*model, questions.threads, on_width);
  if (!speed.ok()) {
    report.verdict = speed.error().message();
    return {};
  }
  report.speed = std::move(*speed);
  return {};
}

void save(const std::string& path, const NpuReport& report) {
  if (path.empty() || !report.speed) return;
  constexpr std::int64_t kNever = 65536;  // wider than any piece
  const auto least = static_cast<std::int64_t>(report.speed->recommended_min_tokens);
  const npu::LoadedProfile written = npu::update_profile(
      path, [&](npu::Profile& profile) { profile.prefill_min_tokens = least > 0 ? least : kNever; });
  if (!written.note.empty()) fmt::print(stderr, "kazeia: {}.\n", written.note);
}

}  // namespace

Result<NpuReport> examine_npu(const NpuQuestions& questions) {
  initialise_backend();
  NpuReport report;
  report.profile = npu::profile_path(questions.profile_file);
  npu::Profile profile;
  if (!report.profile.empty()) profile = npu::read_profile(report.profile).profile;
  report.history = failures_sentence(profile.failures);
  const Result<npu::Device*> device = npu::Device::open();
  if (!device.ok()) {
    report.verdict = device.error().message();
    return report;
  }
  report.device = (*device)->info();
  (*device)->set_policy(profile.placement);
  Result<std::vector<npu::OpCheck>> ops = npu::check_ops(**device);
  if (!ops.ok()) {
    report.verdict = ops.error().message();
    return report;
  }
  report.ops = std::move(*ops);
  if (npu::Guard::failed()) {
    report.verdict = fmt::format("the NPU failed: {}", npu::Guard::status().reason);
    return report;
  }
  const std::string wrong = wrong_operations(report.ops);
  if (!wrong.empty()) report.verdict = fmt::format("the NPU computes wrong results: {}", wrong);
  if (!questions.model.empty() && report.verdict.empty()) KAZEIA_TRY(examine_model(questions, report));
  if (!report.verdict.empty()) return report;
  report.usable = true;
  report.verdict = "the NPU can be used";
  if (report.speed) {
    report.verdict +=
        report.speed->recommended_min_tokens > 0
            ? fmt::format(", and pays for pieces of {} tokens and more", report.speed->recommended_min_tokens)
            : ", but the CPU was faster at every width";
  } else if (report.check == std::nullopt) {
    report.verdict += " as far as can be told without a model (give one with --model)";
  }
  if (questions.save) save(report.profile, report);
  return report;
}

std::string as_text(const NpuReport& report) {
  std::string text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  if (report.device) {
    const npu::DeviceInfo& device = *report.device;
    row("NPU", fmt::format("{}, Hexagon V{}, {} session{}, opened in {}", device.name, device.architecture,
                           device.sessions, device.sessions == 1 ? "" : "s", format_duration(device.open_ms)));
    if (!device.hardware.empty()) row("", device.hardware);
    row("", fmt::format("{} addressable by one batch", format_bytes(device.memory_window_bytes)));
  }
  if (!report.profile.empty()) row("profile", report.profile);
  if (!report.history.empty()) row("", report.history);
  if (!report.ops.empty()) {
    text += fmt::format("\n{:<28}{:<13}{:<13}{:>9}{:>11}{:>11}\n", "operation", "class", "result", "error", "NPU us",
                        "CPU us");
    for (const npu::OpCheck& op : report.ops) {
      const std::string_view result = !op.supported ? "on the CPU" : op.correct ? "correct" : "WRONG";
      text += fmt::format("{:<28}{:<13}{:<13}", op.name, npu::op_class_name(op.op_class), result);
      text += op.supported ? fmt::format("{:>9.1e}{:>11.0f}{:>11.0f}\n", op.error, op.npu_us, op.cpu_us)
                           : fmt::format("{:>9}{:>11}{:>11.0f}\n", "", "", op.cpu_us);
    }
  }
  if (report.check) {
    text += fmt::format(
        "\nself-check: {} matrices in the layout of upstream and file; two prompts on both processors "
        "agree to {:.4f}\n",
        report.checked_matrices, report.check->agreement);
  }
  if (report.speed) {
    text += fmt::format("\n{:<10}{:>12}{:>12}{:>8}\n", "tokens", "NPU tok/s", "CPU tok/s", "ratio");
    for (const WidthSpeed& width : report.speed->widths) {
      text += fmt::format("{:<10}{:>12.1f}{:>12.1f}{:>8.2f}\n", width.tokens, width.npu_tps, width.cpu_tps,
                          width.npu_tps / width.cpu_tps);
    }
    text += fmt::format("a switch between them takes {:.2f} ms\n", report.speed->switch_ms);
  }
  return text + fmt::format("\n{}{}.\n", report.usable ? "" : "! ", report.verdict);
}

Json as_json(const NpuReport& report) {
  Json json = {{"usable", report.usable}, {"verdict", report.verdict}, {"driver", report.device.has_value()}};
  if (report.device) {
    json["device"] = {{"name", report.device->name},
                      {"architecture", report.device->architecture},
                      {"hardware", report.device->hardware},
                      {"sessions", report.device->sessions},
                      {"memory_window_bytes", report.device->memory_window_bytes},
                      {"open_ms", report.device->open_ms}};
  }
  json["profile"] = report.profile;
  json["history"] = report.history;
  json["operations"] = Json::array();
  for (const npu::OpCheck& op : report.ops) {
    json["operations"].push_back({{"name", op.name},
                                  {"class", npu::op_class_name(op.op_class)},
                                  {"supported", op.supported},
                                  {"correct", op.correct},
                                  {"error", op.error},
                                  {"tolerance", op.tolerance},
                                  {"npu_us", op.npu_us},
                                  {"cpu_us", op.cpu_us}});
  }
  if (report.check) {
    json["self_check"] = {{"passed", report.check->passed},
                          {"agreement", report.check->agreement},
                          {"distinction", report.check->distinction},
                          {"finding", report.check->finding},
                          {"checked_matrices", report.checked_matrices}};
  }
  if (report.speed) {
    Json widths = Json::array();
    for (const WidthSpeed& width : report.speed->widths) {
      widths.push_back({{"tokens", width.tokens}, {"npu_tps", width.npu_tps}, {"cpu_tps", width.cpu_tps}});
    }
    json["speed"] = {{"widths", std::move(widths)},
                     {"switch_ms", report.speed->switch_ms},
                     {"recommended_min_tokens", report.speed->recommended_min_tokens}};
  }
  return json;
}

}  // namespace kazeia::cli
