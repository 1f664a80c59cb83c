// From logits to one token: penalties, truncation, temperature, grammar, seed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/model.h"

struct llama_sampler;

namespace kazeia {

// Defaults are those of Qwen3's model card for thinking off (temperature 0.7, top-p 0.8, top-k 20).
struct SamplingOptions {
  float temperature = 0.7f;          // [0, 5]; 0 = greedy: the most likely token, seed unused
  std::int32_t top_k = 20;           // [0, 1000000]; 0 = off
  float top_p = 0.8f;                // (0, 1]; 1 = off
  float min_p = 0.0f;                // [0, 1]; 0 = off
  float repeat_penalty = 1.0f;       // [0.5, 3]; 1 = off
  float presence_penalty = 0.0f;     // [-2, 2]; 0 = off
  std::int32_t penalty_window = 64;  // [0, 65536] last tokens that the penalties look at
  std::uint32_t seed = 0;            // same seed, options and prompt: same text
  // At most one of the two. A constraint applies to the answer, not to the thinking before it.
  std::string grammar;      // GBNF with a rule named "root"
  std::string json_schema;  // JSON schema; "{}" = any JSON value
};

// kUsage with the option's name, the value and the valid range.
Status validate(const SamplingOptions& options);

class Sampler {
 public:
  // kUsage for a value out of range, or a grammar or schema that does not parse.
  static Result<std::unique_ptr<Sampler>> create(std::shared_ptr<const Model> model, const SamplingOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Chooses from [vocabulary_size] logits and remembers the choice (penalties, grammar). kEngine if no token
  // is allowed. With `constrained` false the grammar neither limits nor sees this token.
  Result<Token> sample(std::span<const float> logits, bool constrained = true);
  // The grammar has been matched completely and allows nothing more.
  bool constraint_complete() const;
  // Forgets penalties and grammar progress; the seed starts again.
  void reset();

 private:
  struct State;
  explicit Sampler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kazeia
