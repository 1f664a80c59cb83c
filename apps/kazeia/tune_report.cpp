#include "tune_report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_value(const bench::Ratio& gain) {
  return {{"median", gain.median}, {"low", gain.low}, {"high", gain.high}};
}

Json to_value(const std::vector<LeftOut>& left_out) {
  Json rows = Json::array();
  for (const LeftOut& one : left_out) rows.push_back({{"setting", one.setting}, {"reason", one.reason}});
  return rows;
}

const bench::Proof* proof_of(const bench::SearchResult& result, const std::string& setting) {
  for (const bench::Proof& proof : result.proofs) {
    if (proof.setting == setting) return &proof;
  }
  return nullptr;
}

const bench::SearchedSetting& searched(const TunePlan& plan, const std::string& setting) {
  return *std::find_if(plan.settings.begin(), plan.settings.end(),
                       [&](const bench::SearchedSetting& one) { return one.name == setting; });
}

// "decode_1024", with the gain that decided
std::string gain_column(const bench::Proof& proof) {
  return proof.judged.figure + " " + bench::gain_text(proof.gain(proof.judged.figure)->gain);
}

// The whole, figure by figure: a loss that is too small to be one is shown, too.
std::string whole_text(const bench::Proof& whole) {
  std::string text = fmt::format("\n{:<24} {:>12} {:>12}  {}\n", "all of them", "default", "tuned", "gain");
  for (const bench::FigureGain& gain : whole.gains) {
    const auto number = [&](const std::vector<double>& samples) {
      const double value = bench::median(samples);
      return gain.figure.ends_with("_bytes") ? format_bytes(static_cast<std::uint64_t>(value))
                                             : fmt::format("{:.4g}", value);
    };
    text += fmt::format("{:<24} {:>12} {:>12}  {}\n", gain.figure, number(gain.instead), number(gain.tuned),
                        bench::gain_text(gain.gain));
  }
  return text + fmt::format("record {}\n", whole.record);
}

std::string left_out_text(const std::vector<LeftOut>& left_out) {
  std::string text;
  for (const LeftOut& one : left_out) text += fmt::format("not searched: {}: {}\n", one.setting, one.reason);
  return text;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string plan_text(const TunePlan& plan, double minutes) {
  std::string text = fmt::format("{:<18} {:<10} {:<22} {}\n", "setting", "default", "tried", "judged by");
  std::size_t values = 0;
  for (const bench::SearchedSetting& setting : plan.settings) {
    if (!setting.only_shown) values += setting.values.size();
    text += fmt::format("{:<18} {:<10} {:<22} {}{}\n", setting.name, setting.instead,
                        fmt::format("{}", fmt::join(setting.values, ",")),
                        fmt::format("{}", fmt::join(setting.figures, ", ")),
                        setting.only_shown ? " (shown only: it changes answers; --coarser-kv may choose it)" : "");
  }
  text += left_out_text(plan.left_out);
  text += fmt::format(
      "A first look at {} values, longer ones at the better halves, then at least 8 processes for each proof; at most "
      "{:g} minutes. How far that goes depends on how long the model takes to load and to read {} tokens.\n",
      values, minutes, plan.depth);
  return text;
}

std::string plan_json(const TunePlan& plan, double minutes) {
  Json settings = Json::array();
  for (const bench::SearchedSetting& setting : plan.settings) {
    settings.push_back({{"setting", setting.name},
                        {"default", setting.instead},
                        {"values", setting.values},
                        {"figures", setting.figures},
                        {"only_shown", setting.only_shown}});
  }
  return dump({{"minutes", minutes},
               {"context", plan.context_tokens},
               {"settings", std::move(settings)},
               {"left_out", to_value(plan.left_out)}});
}

std::string tune_text(const TuneReport& report) {
  const bench::SearchResult& result = report.result;
  std::string text = fmt::format("{:<18} {:<10} {:<10} {}\n", "setting", "default", "chosen", "gain");
  for (const bench::Finding& finding : result.findings) {
    const std::string& instead = searched(report.plan, finding.setting).instead;
    if (const bench::Proof* proof = proof_of(result, finding.setting)) {
      text += fmt::format("{:<18} {:<10} {:<10} {}, record {}\n", finding.setting, instead, finding.value,
                          gain_column(*proof), proof->record);
    } else {
      const std::string best = finding.value.empty() ? "" : finding.value + ": ";
      text += fmt::format("{:<18} {:<10} {:<10} {}{}\n", finding.setting, instead, "default", best, finding.reason);
    }
  }
  text += left_out_text(report.plan.left_out);
  if (!result.chosen.empty()) text += whole_text(result.whole);
  text += fmt::format("\n{} took {}", report.model, format_duration(report.seconds * 1000));
  if (!result.ended.empty()) text += "; " + result.ended;
  text += ".\n";
  if (!report.profile.empty()) {
    text += fmt::format("Loads of this model use it from now on (--no-profile: not): {}\n", report.profile);
  } else if (!report.kept.empty()) {
    text += fmt::format("Nothing is better than the defaults for certain; the profile of {} stays.\n", report.kept);
  } else {
    text += "Nothing is better than the defaults for certain: no profile is written.\n";
  }
  return text;
}

std::string tune_json(const TuneReport& report) {
  const bench::SearchResult& result = report.result;
  Json settings = Json::array();
  for (const bench::Finding& finding : result.findings) {
    Json row = {{"setting", finding.setting},
                {"default", searched(report.plan, finding.setting).instead},
                {"value", finding.value},
                {"chosen", finding.chosen}};
    if (const bench::Proof* proof = proof_of(result, finding.setting)) {
      row["figure"] = proof->judged.figure;
      row["gain"] = to_value(proof->gain(proof->judged.figure)->gain);
      row["record"] = proof->record;
    } else {
      row["reason"] = finding.reason;
    }
    settings.push_back(std::move(row));
  }
  Json whole = Json::object();
  for (const bench::FigureGain& gain : result.whole.gains) {
    whole[gain.figure] = {
        {"default", bench::median(gain.instead)}, {"tuned", bench::median(gain.tuned)}, {"gain", to_value(gain.gain)}};
  }
  Json shown = Json::array();
  for (const bench::Proof& proof : result.shown) {
    Json figures = Json::object();
    for (const bench::FigureGain& gain : proof.gains) figures[gain.figure] = to_value(gain.gain);
    shown.push_back({{"setting", proof.setting}, {"value", proof.value}, {"gains", figures}, {"record", proof.record}});
  }
  return dump({{"model", report.model},
               {"seconds", report.seconds},
               {"ended", result.ended},
               {"settings", std::move(settings)},
               {"whole", std::move(whole)},
               {"whole_record", result.whole.record},
               {"shown", std::move(shown)},
               {"left_out", to_value(report.plan.left_out)},
               {"profile", report.profile}});
}

std::string profile_text(const bench::TunedProfile& profile, const std::string& path) {
  std::string text = fmt::format("tuned {} by {}\n{:<18} {:<10} {:<10} {}\n", profile.time, profile.engine_version,
                                 "setting", "default", "chosen", "gain");
  for (const bench::TunedChoice& choice : profile.choices) {
    text += fmt::format("{:<18} {:<10} {:<10} {} {}, record {}\n", choice.setting, choice.instead, choice.value,
                        choice.figure, bench::gain_text(choice.gain), choice.record);
  }
  return text + path + "\n";
}

std::string profile_json(const bench::TunedProfile& profile, const std::string& path) {
  Json choices = Json::array();
  for (const bench::TunedChoice& choice : profile.choices) {
    choices.push_back({{"setting", choice.setting},
                       {"default", choice.instead},
                       {"value", choice.value},
                       {"figure", choice.figure},
                       {"gain", to_value(choice.gain)},
                       {"record", choice.record}});
  }
  return dump({{"profile", path},
               {"time", profile.time},
               {"machine", profile.machine_id},
               {"model_hash", profile.model_hash},
               {"engine_version", profile.engine_version},
               {"upstream_version", profile.upstream_version},
               {"choices", std::move(choices)}});
}

std::string no_profile_json(const std::string& machine_id, const std::string& model_hash) {
  return dump({{"profile", nullptr}, {"machine", machine_id}, {"model_hash", model_hash}, {"choices", Json::array()}});
}

bench::TunedProfile profile_of(const bench::SearchResult& result, const bench::Record& origin) {
  bench::TunedProfile profile;
  profile.machine_id = origin.machine.id;
  profile.model_hash = origin.model.hash;
  profile.engine_version = origin.engine_version;
  profile.upstream_version = origin.upstream_version;
  profile.time = origin.time;
  for (const bench::Proof& proof : result.proofs) {
    profile.choices.push_back({proof.setting, proof.value, proof.instead, proof.record, proof.judged.figure,
                               proof.gain(proof.judged.figure)->gain});
  }
  return profile;
}

}  // namespace kazeia::cli
