// Messages without meaning, for measuring chats: ordinary words, so that a tokeniser does with them what it does with
// what people write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/model.h"

namespace kazeia::cli {

// Words in an order that `seed` chooses, cut so that the model's tokeniser makes `count` tokens of them, give or take
// one or two where a cut is tokenised in another way than the whole.
Result<std::string> plain_text(const Model& model, std::size_t count, std::uint32_t seed);

}  // namespace kazeia::cli
