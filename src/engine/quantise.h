// The data of a prepared model: every tensor converted as gguf/preparation.h planned it, streamed from the source's
// mapping to the writer.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cancel.h"
#include "base/result.h"
#include "gguf/preparation.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace kazeia {

struct QuantiseOptions {
  int threads = 0;  // 0: one per physical performance core
  const CancelFlag* cancel = nullptr;
  // Of tensor data read, on the calling thread; at least once per piece of a few megabytes.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> on_progress;
};

// Writes the data of all tensors to `writer`, which was created with prepared_header() of the same plan; does not
// commit. Unchanged tensors are copied byte for byte. The bytes do not depend on the number of threads. Memory: a few
// megabytes per thread; pages of the source that have been read are given back to the kernel.
// Errors: kFile for a weight that is not finite or far beyond any model's, kWrite, kCancelled.
Status quantise(const gguf::ModelFile& source, const gguf::Preparation& preparation, gguf::Writer& writer,
                const QuantiseOptions& options);

}  // namespace kazeia
