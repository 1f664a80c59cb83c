// A grammar over the tokens of a vocabulary, and how far it has been matched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model.h"
#include "engine/token.h"

struct llama_sampler;
struct llama_token_data;

namespace kazeia {

// Control tokens have no text (Model::piece), so they never match, except in a grammar that names tokens. Tokens
// that end the generation match where the grammar is complete.
class Constraint {
 public:
  // kUsage with the reason if the grammar cannot be used.
  static Result<std::unique_ptr<Constraint>> create(std::shared_ptr<const Model> model, const std::string& gbnf);
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  bool allows(Token token) const;
  // Removes what is not allowed now, keeping the order.
  void filter(std::vector<llama_token_data>& candidates) const;
  // Advances by a token that allows() accepts; kEngine otherwise, and nothing has changed. kEngine too if upstream
  // contradicts its own answer (it may, for grammars that name tokens): then nothing is allowed until reset().
  Status accept(Token token);
  // Matched completely, and nothing but the end may follow.
  bool complete() const;
  void reset();

 private:
  Constraint() = default;
  bool is_control(Token token) const;

  std::shared_ptr<const Model> model_;
  llama_sampler* grammar_ = nullptr;
  bool names_tokens_ = false;
  bool broken_ = false;   // upstream refused a token it had allowed, and would abort if asked again before a reset
  Token end_token_ = -1;  // any token that ends the generation; -1 if the vocabulary has none
  std::vector<Token> byte_tokens_;  // those whose text is a single byte
};

}  // namespace kazeia
