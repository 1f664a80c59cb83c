// Writes a model with random weights and the exact shapes of a public one, so that speed and memory can be
// measured without downloading anything. What it says is noise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "gguf/shapes.h"
#include "gguf/writer.h"

namespace kazeia::gguf {

struct SynthOptions {
  std::uint64_t seed = 0;  // same seed and shape: the same file, byte for byte
  bool overwrite = false;
  // Bytes so far and in total, on the calling thread, every few megabytes.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
  const CancelFlag* cancel = nullptr;  // acts within a few megabytes; nothing is left behind
};

// Metadata, vocabulary and tensor descriptions of `shape`; the tensors are those of tensors_of().
Header synthetic_header(const Shape& shape);

// Streams the file to `path` with two threads and a few megabytes of buffers, and returns its size in bytes.
// kWrite if the file exists (without `overwrite`), does not fit the disk, or cannot be written; kCancelled.
Result<std::uint64_t> write_synthetic(const Shape& shape, const std::string& path, const SynthOptions& options);

}  // namespace kazeia::gguf
