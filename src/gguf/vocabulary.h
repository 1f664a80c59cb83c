// A made-up byte-level BPE vocabulary: all bytes, pronounceable filler words with the merges that reach the
// short ones, and the special tokens of the Qwen models at their published ids. Ordinary text tokenises.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kazeia::gguf {

struct Vocabulary {
  std::vector<std::string> tokens;        // unique; index = id
  std::vector<std::int32_t> token_types;  // [tokens] 1 normal, 3 control, 4 user-defined, 5 unused
  std::vector<std::string> merges;        // "left right", most urgent first
  std::uint32_t end_of_text = 0;
  std::uint32_t end_of_turn = 0;
};

// `first_special` is the id of <|endoftext|>; at least 30,000, at least 26 below `size`, and below 1.7 million.
Vocabulary make_vocabulary(std::uint32_t size, std::uint32_t first_special);

// A ChatML template with system prompt, tools, thinking dropped from history and `enable_thinking`.
std::string_view chat_template();

}  // namespace kazeia::gguf
