#include "engine/npu_speed.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "engine/timeline.h"

namespace kazeia {
namespace {

constexpr std::array<std::size_t, 5> kWidths = {32, 64, 128, 256, 512};
constexpr std::size_t kRepetitions = 3;

Result<std::unique_ptr<Timeline>> timeline_for(const std::shared_ptr<const Model>& model, NpuPart part, int threads) {
  TimelineOptions options;
  options.context_tokens = kWidths.back() + 32;
  options.ubatch_tokens = kWidths.back();
  options.decode_threads = threads;
  options.npu.part = part;
  options.npu.prefill_min_tokens = 1;
  options.npu.witness = Witness::kNever;
  return Timeline::create(model, options);
}

Result<double> tokens_per_second(Timeline& timeline, std::span<const Token> prompt) {
  std::array<double, kRepetitions> ms{};
  timeline.reset();
  KAZEIA_TRY(timeline.prefill(prompt));  // plans, and maps the buffers
  for (double& sample : ms) {
    timeline.reset();
    const Stopwatch watch;
    KAZEIA_TRY(timeline.prefill(prompt));
    sample = watch.elapsed_ms();
  }
  std::sort(ms.begin(), ms.end());
  return static_cast<double>(prompt.size()) / ms[kRepetitions / 2] * 1000;
}

}  // namespace

std::size_t recommended_min_tokens(std::span<const WidthSpeed> widths) {
  std::size_t least = 0;
  for (auto width = widths.rbegin(); width != widths.rend() && width->npu_tps > width->cpu_tps; ++width) {
    least = width->tokens;
  }
  return least;
}

Result<NpuSpeed> measure_npu_speed(const std::shared_ptr<const Model>& model, int threads,
                                   const std::function<void(std::size_t)>& on_width) {
  KAZEIA_ASSIGN(const auto npu, timeline_for(model, NpuPart::kPrefill, threads));
  KAZEIA_ASSIGN(const auto cpu, timeline_for(model, NpuPart::kNone, threads));
  const auto range = static_cast<std::size_t>(std::max(2, model->vocabulary_size() / 2));
  Tokens text(kWidths.back());
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(i * 7919 % range);
  NpuSpeed speed;
  for (const std::size_t width : kWidths) {
    if (on_width) on_width(width);
    const std::span<const Token> prompt = std::span(text).first(width);
    WidthSpeed measured;
    measured.tokens = width;
    KAZEIA_ASSIGN(measured.npu_tps, tokens_per_second(*npu, prompt));
    KAZEIA_ASSIGN(measured.cpu_tps, tokens_per_second(*cpu, prompt));
    speed.widths.push_back(measured);
    // A few switches, so that their mean means something.
    for (int i = 0; i < 4; ++i) {
      npu->reset();
      KAZEIA_TRY(npu->prefill(std::span(text).first(32)));
      KAZEIA_TRY(npu->decode(text.back()));
    }
    const NpuUse use = npu->npu_use();
    if (!use.failure.empty()) return Error(ErrorCode::kEngine, "the NPU failed: " + use.failure);
    speed.switch_ms = use.switch_us_mean / 1000;
  }
  speed.recommended_min_tokens = recommended_min_tokens(speed.widths);
  return speed;
}

}  // namespace kazeia
