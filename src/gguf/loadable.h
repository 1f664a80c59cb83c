// What upstream asserts, divides by or dereferences without checking, checked here first: a file that parses
// can still abort the process inside llama.cpp. Read from upstream b11118 (model loader, vocabulary, the qwen3
// and qwen35 graphs, the CPU operators). What upstream itself refuses cleanly, such as an architecture it
// does not have, is left to it.
#pragma once

#include <span>

#include "base/result.h"
#include "gguf/reader.h"

namespace kazeia::gguf {

// Upstream's compiled-in limits.
inline constexpr std::uint64_t kMaxLayers = 512;
inline constexpr std::uint64_t kMaxExperts = 1024;

// `parts` are those of one model, the first with the metadata. kFile if the metadata contradict themselves or
// the tensors, kUnsupported if they are beyond what upstream can hold or compute with.
Status check_loadable(std::span<const File> parts);

// The tokenizer's share of check_loadable(): array types and lengths, unique tokens, special ids.
Status check_vocabulary(const File& metadata);

}  // namespace kazeia::gguf
