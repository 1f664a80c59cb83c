// `kazeia why`: where the settings that a model runs with come from.

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/ledger.h"
#include "gguf/reader.h"
#include "ledger_report.h"
#include "options.h"
#include "run_settings.h"
#include "settings_report.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct WhyArguments {
  ModelFlags model;
  std::string setting;
  std::string ledger = "ledger";
  bool json = false;
};

// `kazeia why decode_threads` has a setting where a model could be.
void tell_apart(WhyArguments& arguments) {
  std::string& path = arguments.model.path;
  std::error_code ignored;
  if (!arguments.setting.empty() || plan::find_setting(path) == nullptr) return;
  if (std::filesystem::exists(path, ignored)) return;
  arguments.setting = std::exchange(path, {});
}

// 0 if the model does not say. Errors of the reader.
Result<std::uint64_t> trained_context(const std::string& path) {
  KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(path));
  const gguf::Value* architecture = file.metadata().find("general.architecture");
  if (architecture == nullptr) return std::uint64_t{0};
  const std::string key = std::string(architecture->as_string().value_or("")) + ".context_length";
  const gguf::Value* trained = file.metadata().find(key);
  return trained == nullptr ? 0 : trained->as_unsigned().value_or(0);
}

// What the ledger has of the record that a tuned choice names.
std::string evidence(const SettingInForce& setting, const std::string& folder) {
  if (!setting.tuned) return {};
  const auto records = bench::Ledger(folder).read_all();
  const auto record = records.ok() ? bench::find_record(*records, setting.tuned->record) : records.error();
  if (!record.ok()) return fmt::format("That record is not in the ledger '{}'.", folder);
  std::string line = list_text(std::span(&*record, 1));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return fmt::format("The ledger '{}' has it:\n{}", folder, line);
}

Status why(WhyArguments arguments) {
  tell_apart(arguments);
  const std::string& path = arguments.model.path;
  std::uint64_t trained = 0;
  if (!path.empty()) {
    KAZEIA_ASSIGN(trained, trained_context(path));
  }
  ResolvedSettings resolved = resolve_settings(arguments.model);
  for (SettingInForce& setting : resolved.settings) {
    const bool cut = setting.setting->name == "context" && setting.origin == Origin::kBuiltIn && trained != 0;
    if (cut)
      setting.value = std::to_string(std::min(trained, std::uint64_t{arguments.model.timeline().context_tokens}));
  }
  std::span<const SettingInForce> shown = resolved.settings;
  if (!arguments.setting.empty()) {
    const plan::Setting* wanted = plan::find_setting(arguments.setting);
    if (wanted == nullptr) {
      return Error(ErrorCode::kUsage, fmt::format("there is no setting '{}'", arguments.setting),
                   "`kazeia why` lists them");
    }
    shown = shown.subspan(static_cast<std::size_t>(wanted - plan::settings().data()), 1);
  }
  Output output;
  if (arguments.json) {
    nlohmann::ordered_json json = {
        {"model", path.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(path)},
        {"note", resolved.note},
        {"settings", why_json(shown)}};
    return output.write(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  if (!resolved.note.empty()) write_to_stderr(fmt::format("kazeia: {}.\n", resolved.note));
  const bool one = !arguments.setting.empty();
  return output.write(without_control_characters(
      one ? why_sentences(shown.front(), evidence(shown.front(), arguments.ledger)) : why_table(shown)));
}

}  // namespace

void add_why(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<WhyArguments>();
  CLI::App* verb = app.add_subcommand("why", "Where the settings that a model runs with come from");
  verb->description(
      "For every setting its value and where that comes from: the built-in default with the record it rests on,\n"
      "`kazeia tune` with its record and gain, or you; of one SETTING the whole chain. Takes the flags of `run`.\n"
      "Without a model: the built-in defaults. Nothing is loaded.");
  add_model_flags(*verb, arguments->model);
  verb->get_option("MODEL")->required(false);
  verb->add_option("SETTING", arguments->setting, "One of them, as in decode_threads");
  add_setting_flag(*verb, arguments->model, "checkpoint_spacing", "As of `chat`");
  add_setting_flag(*verb, arguments->model, "checkpoint_memory", "As of `chat`");
  verb->add_option("--ledger", arguments->ledger, "Where the records are")->type_name("DIR")->capture_default_str();
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->callback([arguments, &action] { action = [arguments] { return why(*arguments); }; });
}

}  // namespace kazeia::cli
