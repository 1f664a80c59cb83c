// How well a model predicts a text, computed by upstream alone (its layouts, its kernels), so that two files of one
// model can be compared without anything of this engine in between.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/token.h"

namespace kazeia {

struct PerplexityOptions {
  int threads = 0;  // 0: one per physical performance core
  // Of a longer text, this many windows of 256 tokens spread over it are read; 0: all. Bounds the time.
  std::size_t most_windows = 0;
  const CancelFlag* cancel = nullptr;
  std::function<void(float fraction)> on_progress;  // 0..1, on the calling thread
};

// What a model thinks of one position of the text. Logarithms are natural.
struct Prediction {
  Token token = 0;            // that the text goes on with
  float log_probability = 0;  // of that token
  Token first_choice = 0;     // the likeliest token
  // Up to 64 tokens and their log probabilities: the likeliest ones, or those of the reference.
  std::vector<Token> tokens;
  std::vector<float> log_probabilities;
};

// How one model read a text, in reading order. Only positions with enough text before them are predicted.
struct Reading {
  std::vector<Prediction> predictions;

  // exp of the mean negative log probability: as many tokens as the model hesitates between.
  double perplexity() const;
};

struct Comparison {
  double source_perplexity = 0;
  double prepared_perplexity = 0;
  double ratio = 0;  // prepared / source
  // Mean over positions of the Kullback-Leibler divergence of the prepared model from the source, in nats, over the
  // source's likeliest tokens and the rest as one: never more than the divergence over the whole vocabulary.
  double divergence = 0;
  double same_choice = 0;  // share of positions with the same likeliest token
  std::size_t positions = 0;
};

// Loads the file (all parts of a split one) by upstream, memory-mapped, reads `text` in windows of 256 tokens
// and frees the model again. With a `reference` (null for the first of two), the log probabilities are those of its
// tokens, which compare() needs. Memory: what upstream maps, a second copy in its faster
// layouts if there is room for it, and about 150 MB for a vocabulary of 248,000 tokens. Errors: kUnsupported (not a
// text model), kFile (a text of fewer than 64 tokens), kCancelled, kEngine.
Result<Reading> read_text(const std::vector<std::string>& parts, std::string_view text, const Reading* reference,
                          const PerplexityOptions& options);

// `prepared` was read with `source` as its reference. kEngine if they are not readings of one text.
Result<Comparison> compare(const Reading& source, const Reading& prepared);

// About 1,500 words of English and French prose (models/perplexity_text.txt).
std::string_view perplexity_text();

}  // namespace kazeia
