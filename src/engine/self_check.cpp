#include "engine/self_check.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/agreement.h"
#include "engine/timeline.h"

namespace kazeia {
namespace {

// One row of tiles: the narrowest piece that the NPU is given.
constexpr std::size_t kPromptTokens = 32;
// Different prompts give clearly different logits; what a constant or stuck device answers is the same.
constexpr double kMostAlike = 0.9999;

// Any tokens will do, because both processors read the same; spread over the vocabulary, no control tokens at its end.
Tokens some_tokens(const Model& model, std::uint64_t seed) {
  Tokens tokens(kPromptTokens);
  const auto range = static_cast<std::uint64_t>(std::max(2, model.vocabulary_size() * 9 / 10));
  std::uint64_t state = seed;
  for (Token& token : tokens) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<Token>((state >> 33) % range);
  }
  return tokens;
}

struct Reading {
  std::vector<float> logits;
  double ms = 0;
  std::string failure;  // of the device
};

Result<Reading> read(const std::shared_ptr<const Model>& model, NpuPart part, const Tokens& prompt) {
  TimelineOptions options;
  options.context_tokens = 256;
  options.ubatch_tokens = kPromptTokens;
  options.npu.part = part;
  options.npu.witness = Witness::kNever;  // this is the witness
  KAZEIA_ASSIGN(const auto timeline, Timeline::create(model, options));
  const Stopwatch watch;
  KAZEIA_TRY(timeline->prefill(prompt));
  Reading reading;
  reading.ms = watch.elapsed_ms();
  reading.logits.assign(timeline->logits().begin(), timeline->logits().end());
  const NpuUse use = timeline->npu_use();
  if (part == NpuPart::kPrefill) {
    reading.failure = use.failure;
    // What the CPU computed instead would agree with itself.
    if (reading.failure.empty() && use.prefill_tokens != prompt.size()) reading.failure = "it did not read the prompt";
  }
  return reading;
}

}  // namespace

Result<SelfCheck> check_npu(const std::shared_ptr<const Model>& model) {
  SelfCheck check;
  check.agreement = 1;
  std::vector<float> first;
  for (const std::uint64_t seed : {1U, 2U}) {
    const Tokens prompt = some_tokens(*model, seed);
    KAZEIA_ASSIGN(Reading npu, read(model, NpuPart::kPrefill, prompt));
    if (!npu.failure.empty()) {
      check.finding = std::move(npu.failure);
      return check;
    }
    KAZEIA_ASSIGN(const Reading cpu, read(model, NpuPart::kNone, prompt));
    check.agreement = std::min(check.agreement, agreement(npu.logits, cpu.logits));
    check.npu_ms += npu.ms;
    check.cpu_ms += cpu.ms;
    if (first.empty()) {
      first = std::move(npu.logits);
    } else {
      check.distinction = agreement(first, npu.logits);
    }
  }
  if (check.agreement < kLeastAgreement) {
    check.finding = wrong_results(check.agreement);
  } else if (check.distinction > kMostAlike) {
    check.finding = "it answers the same to different prompts";
  }
  check.passed = check.finding.empty();
  return check;
}

}  // namespace kazeia
