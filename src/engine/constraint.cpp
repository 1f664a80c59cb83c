#include "engine/constraint.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include <fmt/format.h>

#include "engine/backend.h"
#include "engine/gbnf.h"
#include "llama.h"

namespace kazeia {

Result<std::unique_ptr<Constraint>> Constraint::create(std::shared_ptr<const Model> model, const std::string& gbnf) {
  KAZEIA_ASSIGN(const GrammarFacts facts, check_gbnf(model->vocabulary(), gbnf));
  std::unique_ptr<Constraint> constraint(new Constraint());
  constraint->model_ = std::move(model);
  constraint->names_tokens_ = facts.names_tokens;
  const UpstreamErrors errors;
  std::string reason;
  try {
    constraint->grammar_ = llama_sampler_init_grammar(constraint->model_->vocabulary(), gbnf.c_str(), "root");
    reason = errors.reason();
  } catch (const std::exception& exception) {
    reason = exception.what();
  }
  if (constraint->grammar_ == nullptr) {
    return Error(ErrorCode::kUsage, fmt::format("the grammar cannot be used: {}", reason), "Correct it");
  }
  for (Token token = 0; token < constraint->model_->vocabulary_size(); ++token) {
    if (constraint->model_->ends_generation(token)) {
      if (constraint->end_token_ < 0) constraint->end_token_ = token;
    } else if (constraint->model_->piece(token).size() == 1) {
      constraint->byte_tokens_.push_back(token);
    }
  }
  return constraint;
}

Constraint::~Constraint() {
  if (grammar_ != nullptr) llama_sampler_free(grammar_);
}

bool Constraint::is_control(Token token) const {
  return !names_tokens_ && llama_vocab_is_control(model_->vocabulary(), token) && !model_->ends_generation(token);
}

void Constraint::filter(std::vector<llama_token_data>& candidates) const {
  std::erase_if(candidates, [this](const llama_token_data& candidate) { return is_control(candidate.id); });
  if (broken_) candidates.clear();
  if (candidates.empty()) return;
  // Upstream marks with minus infinity, which a logit may be already.
  std::vector<llama_token_data> marked = candidates;
  for (llama_token_data& candidate : marked) candidate.logit = 0;
  llama_token_data_array array{marked.data(), marked.size(), -1, false};
  try {
    llama_sampler_apply(grammar_, &array);
  } catch (const std::exception&) {
    candidates.clear();  // nothing is known to be allowed
    return;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!std::isinf(marked[i].logit)) candidates[kept++] = candidates[i];
  }
  candidates.resize(kept);
}

bool Constraint::allows(Token token) const {
  std::vector<llama_token_data> one{{token, 0.0f, 0.0f}};
  filter(one);
  return !one.empty();
}

Status Constraint::accept(Token token) {
  if (!allows(token)) {  // upstream would abort or throw
    return Error(ErrorCode::kEngine, fmt::format("token {} does not continue the grammar", token));
  }
  try {
    llama_sampler_accept(grammar_, token);
  } catch (const std::exception& exception) {
    broken_ = true;
    return Error(ErrorCode::kEngine, fmt::format("the grammar cannot be continued: {}", exception.what()));
  }
  return {};
}

bool Constraint::complete() const {
  if (broken_) return false;
  // From cheap to dear: this runs after every token, and the whole vocabulary takes milliseconds.
  if (end_token_ >= 0 && !allows(end_token_)) return false;
  std::vector<llama_token_data> candidates;
  for (const Token token : byte_tokens_) candidates.push_back({token, 0.0f, 0.0f});
  filter(candidates);
  if (!candidates.empty()) return false;
  for (Token token = 0; token < model_->vocabulary_size(); ++token) {
    if (!model_->ends_generation(token)) candidates.push_back({token, 0.0f, 0.0f});
  }
  filter(candidates);
  return candidates.empty();
}

void Constraint::reset() {
  llama_sampler_reset(grammar_);
  broken_ = false;
}

}  // namespace kazeia
