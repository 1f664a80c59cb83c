#include "engine/sampling.h"

#include <cmath>
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "engine/constraint.h"
#include "engine/json_schema.h"
#include "llama.h"

namespace kazeia {
namespace {

// `shown_range` is what the person reads; NaN is in no range.
template <typename Number>
Status check_option(const char* name, Number value, bool in_range, const char* shown_range) {
  if (in_range) return {};
  return Error(ErrorCode::kUsage, fmt::format("{} is {}, must be {}", name, value, shown_range));
}

template <typename Number>
bool within(Number value, Number low, Number high) {
  return value >= low && value <= high;
}

llama_sampler* make_chain(const SamplingOptions& options, std::int32_t vocabulary_size) {
  llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
  const auto add = [chain](llama_sampler* sampler) { llama_sampler_chain_add(chain, sampler); };
  const bool penalties =
      options.penalty_window > 0 && (options.repeat_penalty != 1.0f || options.presence_penalty != 0.0f);
  if (penalties) {
    add(llama_sampler_init_penalties(vocabulary_size, options.penalty_window, options.repeat_penalty, 0.0f,
                                     options.presence_penalty));
  }
  if (options.temperature == 0.0f) {
    add(llama_sampler_init_greedy());
    return chain;
  }
  if (options.top_k > 0) add(llama_sampler_init_top_k(options.top_k));
  if (options.top_p < 1.0f) add(llama_sampler_init_top_p(options.top_p, 1));
  if (options.min_p > 0.0f) add(llama_sampler_init_min_p(options.min_p, 1));
  add(llama_sampler_init_temp(options.temperature));
  // Upstream takes this one number as "choose a seed from the clock".
  const std::uint32_t seed = options.seed == LLAMA_DEFAULT_SEED ? LLAMA_DEFAULT_SEED - 1 : options.seed;
  add(llama_sampler_init_dist(seed));
  return chain;
}

}  // namespace

Status validate(const SamplingOptions& options) {
  const auto& o = options;
  KAZEIA_TRY(check_option("temperature", o.temperature, within(o.temperature, 0.0f, 5.0f), "between 0 and 5"));
  KAZEIA_TRY(check_option("top_k", o.top_k, within(o.top_k, 0, 1000000), "between 0 and 1000000"));
  KAZEIA_TRY(check_option("top_p", o.top_p, o.top_p > 0.0f && o.top_p <= 1.0f, "above 0 and at most 1"));
  KAZEIA_TRY(check_option("min_p", o.min_p, within(o.min_p, 0.0f, 1.0f), "between 0 and 1"));
  KAZEIA_TRY(
      check_option("repeat_penalty", o.repeat_penalty, within(o.repeat_penalty, 0.5f, 3.0f), "between 0.5 and 3"));
  KAZEIA_TRY(check_option("presence_penalty", o.presence_penalty, within(o.presence_penalty, -2.0f, 2.0f),
                          "between -2 and 2"));
  KAZEIA_TRY(
      check_option("penalty_window", o.penalty_window, within(o.penalty_window, 0, 65536), "between 0 and 65536"));
  if (!options.grammar.empty() && !options.json_schema.empty()) {
    return Error(ErrorCode::kUsage, "a grammar and a JSON schema cannot be used together", "Give one of the two");
  }
  return {};
}

struct Sampler::State {
  std::shared_ptr<const Model> model;
  std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> chain{nullptr, &llama_sampler_free};
  std::unique_ptr<Constraint> constraint;  // may be null
  std::vector<llama_token_data> candidates;

  // The chain's choice from the candidates, which it reorders and shortens. They are not empty.
  Token choose() {
    llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(chain.get(), &array);
    const bool selected = array.selected >= 0 && static_cast<std::size_t>(array.selected) < array.size;
    return selected ? array.data[array.selected].id : -1;
  }

  // False if a logit is NaN or plus infinity. Minus infinity means that the model rules the token out.
  bool take(std::span<const float> logits) {
    candidates.clear();
    candidates.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!std::isfinite(logits[i]) && !(logits[i] < 0)) return false;
      if (std::isfinite(logits[i])) candidates.push_back({static_cast<Token>(i), logits[i], 0.0f});
    }
    return true;
  }
};

Sampler::Sampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sampler::~Sampler() = default;

Result<std::unique_ptr<Sampler>> Sampler::create(std::shared_ptr<const Model> model, const SamplingOptions& options) {
  KAZEIA_TRY(validate(options));
  auto state = std::make_unique<State>();
  state->model = std::move(model);
  std::string grammar = options.grammar;
  if (!options.json_schema.empty()) {
    KAZEIA_ASSIGN(grammar, gbnf_from_json_schema(options.json_schema));
  }
  if (!grammar.empty()) {
    KAZEIA_ASSIGN(state->constraint, Constraint::create(state->model, grammar));
  }
  try {
    state->chain.reset(make_chain(options, state->model->vocabulary_size()));
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("cannot create the sampler: {}", exception.what()));
  }
  return std::unique_ptr<Sampler>(new Sampler(std::move(state)));
}

Result<Token> Sampler::sample(std::span<const float> logits, bool constrained) {
  State& state = *state_;
  if (logits.size() != static_cast<std::size_t>(state.model->vocabulary_size())) {
    return Error(ErrorCode::kUsage,
                 fmt::format("{} logits for a vocabulary of {} tokens", logits.size(), state.model->vocabulary_size()));
  }
  Constraint* constraint = constrained ? state.constraint.get() : nullptr;
  const Error unusable(ErrorCode::kEngine, "the model's output is not a number",
                       "The file may be damaged: check it with `kazeia inspect`");
  const Error nothing(ErrorCode::kEngine, "no token is allowed to follow", "Loosen the grammar");
  try {
    if (!state.take(logits)) return unusable;
    if (state.candidates.empty()) return nothing;
    Token token = state.choose();
    // Most tokens that a model proposes continue the grammar, and asking about one is far cheaper than about the
    // whole vocabulary. The distribution is the same: a refused proposal leads to a draw among the allowed ones.
    if (constraint != nullptr && token >= 0 && !constraint->allows(token)) {
      state.take(logits);
      constraint->filter(state.candidates);
      if (state.candidates.empty()) return nothing;
      token = state.choose();
    }
    if (token < 0) return unusable;
    llama_sampler_accept(state.chain.get(), token);
    if (constraint != nullptr) KAZEIA_TRY(constraint->accept(token));
    return token;
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("cannot choose a token: {}", exception.what()));
  }
}

bool Sampler::constraint_complete() const {
  return state_->constraint != nullptr && state_->constraint->complete();
}

void Sampler::reset() {
  llama_sampler_reset(state_->chain.get());
  if (state_->constraint != nullptr) state_->constraint->reset();
}

}  // namespace kazeia
