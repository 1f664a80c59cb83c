#include "prepare_report.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "gguf/inspection.h"
#include "terminal.h"

namespace kazeia::cli {
namespace {

using gguf::PreparedTensor;
using gguf::printable;
using gguf::TypeId;
using Json = nlohmann::ordered_json;

std::string_view name_of(TypeId type) {
  return gguf::tensor_type(type).name;
}

// What the NPU cannot compute with, before or after.
struct Refusals {
  std::uint64_t bytes = 0;
  std::vector<std::string_view> names;
  std::vector<std::string> reasons;  // each once

  void add(const gguf::Tensor& tensor, TypeId type, std::uint64_t tensor_bytes) {
    const std::string reason = gguf::npu_refusal(tensor, type);
    if (reason.empty()) return;
    bytes += tensor_bytes;
    names.push_back(tensor.name);
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(reason);
  }
};

struct BothRefusals {
  Refusals before;
  Refusals after;

  explicit BothRefusals(const gguf::Preparation& preparation) {
    for (const PreparedTensor& tensor : preparation.tensors) {
      before.add(*tensor.source, tensor.source->type->id, tensor.source->bytes);
      after.add(*tensor.source, tensor.type, tensor.bytes);
    }
  }
};

std::string refusals_text(const Refusals& refusals) {
  if (refusals.names.empty()) return "nothing";
  std::string reasons;
  for (const std::string& reason : refusals.reasons) reasons += (reasons.empty() ? "" : ", ") + reason;
  const std::size_t others = refusals.names.size() - 1;
  return fmt::format("{} of {} tensor{}: {} ({}{})", format_bytes(refusals.bytes), refusals.names.size(),
                     others == 0 ? "" : "s", reasons, printable(refusals.names.front()),
                     others == 0 ? std::string() : fmt::format(" and {} more", others));
}

// "31 to Q4_0, 1 to Q6_K"
std::string changes_text(const gguf::Preparation& preparation) {
  std::map<TypeId, std::size_t> counts;
  for (const PreparedTensor& tensor : preparation.tensors) {
    if (tensor.changes()) ++counts[tensor.type];
  }
  std::string text;
  for (const auto& [type, count] : counts)
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", count, name_of(type));
  return text;
}

// Vectors that stay are what everybody expects; the table is about the rest.
bool worth_a_row(const PreparedTensor& tensor) {
  return tensor.changes() || !tensor.note.empty() || tensor.role == gguf::TensorRole::kMatrix ||
         tensor.role == gguf::TensorRole::kEmbedding;
}

std::string table_text(const gguf::Preparation& preparation) {
  std::string text = fmt::format("{:<40} {:>22}  {:<8} {:<8} {:>11} {:>11}  {}\n", "tensor", "shape", "now", "then",
                                 "size now", "then", "");
  std::size_t quiet = 0;
  for (const PreparedTensor& tensor : preparation.tensors) {
    if (!worth_a_row(tensor)) {
      ++quiet;
      continue;
    }
    const std::string refusal = gguf::npu_refusal(*tensor.source, tensor.source->type->id);
    std::string note = tensor.note;
    if (note.empty() && !tensor.changes()) note = "copied";
    if (!refusal.empty()) note += fmt::format("{}the NPU refuses it now: {}", note.empty() ? "" : "; ", refusal);
    text += fmt::format("{:<40} {:>22}  {:<8} {:<8} {:>11} {:>11}  {}", printable(tensor.source->name, 40),
                        gguf::shape_text(*tensor.source), tensor.source->type->name, name_of(tensor.type),
                        format_bytes(tensor.source->bytes), format_bytes(tensor.bytes), note);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  if (quiet > 0) text += fmt::format("and {} norms, biases and other small tensors, copied\n", quiet);
  return text + '\n';
}

std::string notes_text(const gguf::Preparation& preparation) {
  std::string text;
  for (const PreparedTensor& tensor : preparation.tensors) {
    if (tensor.fell_back) text += fmt::format("{}: {}\n", printable(tensor.source->name), tensor.note);
  }
  return text;
}

std::string comparison_text(const PrepareReport& report) {
  if (!report.comparison) {
    if (report.dry_run) return {};
    return report.preparation->changed() == 0 ? "perplexity: nothing to measure, the weights are the same\n"
                                              : "perplexity: not measured\n";
  }
  const Comparison& measured = *report.comparison;
  return fmt::format(
      "perplexity: {:.4g} before, {:.4g} after: x {:.4f} (at most {:.2f})\n"
      "divergence: {:.4f} nats (at most {:.2f}), the same first choice {:.1f} % of {} times\n",
      measured.source_perplexity, measured.prepared_perplexity, measured.ratio, report.max_ratio, measured.divergence,
      report.max_divergence, 100 * measured.same_choice, measured.positions);
}

Json refusals_json(const Refusals& refusals) {
  return {{"tensors", refusals.names.size()},
          {"bytes", refusals.bytes},
          {"reasons", refusals.reasons},
          {"names", refusals.names}};
}

}  // namespace

std::string prepare_text(const PrepareReport& report) {
  const gguf::Preparation& preparation = *report.preparation;
  std::string text;
  if (report.dry_run) text += table_text(preparation);
  const std::string changes = changes_text(preparation);
  const std::size_t copied = preparation.tensors.size() - preparation.changed();
  text += fmt::format("{}: {}\n", report.source->paths().front(), format_bytes(report.source->total_bytes()));
  text += fmt::format("{}: {}, tensors: {}{}{} copied\n",
                      report.output_path.empty() ? std::string("prepared") : report.output_path,
                      format_bytes(report.output_bytes), changes, changes.empty() ? "" : ", ", copied);
  if (!report.dry_run) text += notes_text(preparation);
  const BothRefusals refusals(preparation);
  text += fmt::format("the NPU refuses before: {}\n", refusals_text(refusals.before));
  text += fmt::format("the NPU refuses after: {}\n", refusals_text(refusals.after));
  text += comparison_text(report);
  if (report.dry_run) {
    text += "Nothing was written (--dry-run).\n";
  } else if (report.written) {
    text += fmt::format("written in {}{}\n", format_duration(report.quantise_ms),
                        report.comparison ? fmt::format(", checked in {}", format_duration(report.check_ms)) : "");
  }
  return without_control_characters(text);
}

std::string prepare_json(const PrepareReport& report) {
  const gguf::Preparation& preparation = *report.preparation;
  Json json;
  json["source"] = {{"path", report.source->paths().front()},
                    {"parts", report.source->parts().size()},
                    {"file_bytes", report.source->total_bytes()},
                    {"tensor_bytes", preparation.bytes_before}};
  json["output"] = {{"path", report.output_path.empty() ? Json(nullptr) : Json(report.output_path)},
                    {"file_bytes", report.output_bytes},
                    {"tensor_bytes", preparation.bytes_after}};
  json["dry_run"] = report.dry_run;
  json["written"] = report.written;
  json["tensors_changed"] = preparation.changed();
  json["tensors_copied"] = preparation.tensors.size() - preparation.changed();
  json["requantised"] = preparation.requantises();
  const BothRefusals refusals(preparation);
  json["npu"] = {{"refused_before", refusals_json(refusals.before)}, {"refused_after", refusals_json(refusals.after)}};
  json["perplexity"] = nullptr;
  if (report.comparison) {
    const Comparison& measured = *report.comparison;
    json["perplexity"] = {{"source", measured.source_perplexity},
                          {"prepared", measured.prepared_perplexity},
                          {"ratio", measured.ratio},
                          {"max_ratio", report.max_ratio},
                          {"divergence", measured.divergence},
                          {"max_divergence", report.max_divergence},
                          {"same_choice", measured.same_choice},
                          {"positions", measured.positions}};
  }
  json["seconds"] = {{"quantise", report.quantise_ms / 1000}, {"check", report.check_ms / 1000}};
  json["peak_rss_bytes"] = read_process_memory().peak_rss_bytes;
  Json& list = json["tensors"] = Json::array();
  for (const PreparedTensor& tensor : preparation.tensors) {
    const gguf::Tensor& source = *tensor.source;
    list.push_back({{"name", source.name},
                    {"shape", std::vector(source.dims.begin(), source.dims.begin() + source.dimension_count)},
                    {"type_before", source.type->name},
                    {"type_after", name_of(tensor.type)},
                    {"bytes_before", source.bytes},
                    {"bytes_after", tensor.bytes},
                    {"npu_refusal_before", gguf::npu_refusal(source, source.type->id)},
                    {"npu_refusal_after", gguf::npu_refusal(source, tensor.type)},
                    {"note", tensor.note}});
  }
  // Names in the file need not be UTF-8; the output has to be.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kazeia::cli
