#include "engine/quantise.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"
#include "ggml.h"
#include "plan/threads.h"

namespace kazeia {
namespace {

static_assert(gguf::kQuantizationVersion == GGML_QNT_VERSION);

// What one thread converts at a time. Every block size divides it, and the formats written here quantise each block
// on its own, so a slice need not respect rows and any cut gives the same bytes.
constexpr std::uint64_t kSliceElements = 64 * 1024;
// What is written at a time: at most 16 MiB, as F32.
constexpr std::uint64_t kPieceElements = 64 * kSliceElements;
constexpr std::uint64_t kCopyBytes = 8 * kMiB;
// Beyond the range of f16, in which all scales are stored. Weights are near 1.
constexpr float kLargestWeight = 65504.0f;

ggml_type ggml_type_of(gguf::TypeId type) {
  return static_cast<ggml_type>(type);
}

// Of whole blocks.
std::uint64_t bytes_of(gguf::TypeId type, std::uint64_t elements) {
  return *gguf::tensor_bytes(gguf::tensor_type(type), elements);
}

bool all_usable(std::span<const float> values) {
  // Written so that a NaN is not usable.
  return std::all_of(values.begin(), values.end(), [](float value) { return std::fabs(value) <= kLargestWeight; });
}

class Quantiser {
 public:
  Quantiser(gguf::Writer& writer, const QuantiseOptions& options, std::uint64_t total_bytes)
      : writer_(writer), options_(options), total_bytes_(total_bytes) {
    threads_ = options.threads > 0 ? options.threads : plan::default_threads(read_machine());
    workspaces_.resize(static_cast<std::size_t>(threads_));
  }

  Status copy(std::span<const std::byte> data) {
    while (!data.empty()) {
      const auto piece = data.first(std::min<std::uint64_t>(data.size(), kCopyBytes));
      KAZEIA_TRY(write(piece, piece));
      data = data.subspan(piece.size());
    }
    return {};
  }

  Status convert(const gguf::PreparedTensor& tensor, std::span<const std::byte> data) {
    const gguf::TypeId from = tensor.source->type->id;
    for (std::uint64_t done = 0; done < tensor.source->elements;) {
      const std::uint64_t elements = std::min(kPieceElements, tensor.source->elements - done);
      const auto piece = data.subspan(bytes_of(from, done), bytes_of(from, elements));
      if (!convert_piece(tensor, piece, elements)) {
        return Error(ErrorCode::kFile,
                     fmt::format("tensor '{}' holds values that are not finite numbers or beyond {}",
                                 gguf::printable(tensor.source->name), kLargestWeight),
                     "The file is damaged; get it again");
      }
      KAZEIA_TRY(write(std::span(output_).first(bytes_of(tensor.type, elements)), piece));
      done += elements;
    }
    return {};
  }

 private:
  // What std::jthread would do, which the C++ library of Android's NDK does not have.
  struct Helpers {
    std::vector<std::thread> threads;
    ~Helpers() { join(); }
    void join() {
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }
  };

  // False if a value cannot be quantised.
  bool convert_piece(const gguf::PreparedTensor& tensor, std::span<const std::byte> source, std::uint64_t elements) {
    output_.resize(std::max<std::size_t>(output_.size(), bytes_of(tensor.type, elements)));
    const std::uint64_t slices = (elements + kSliceElements - 1) / kSliceElements;
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> usable{true};
    const auto work = [&](std::vector<float>& values) {
      for (std::uint64_t slice = next++; slice < slices; slice = next++) {
        const std::uint64_t first = slice * kSliceElements;
        const std::uint64_t count = std::min(kSliceElements, elements - first);
        if (!convert_slice(tensor, source, first, count, values)) usable = false;
      }
    };
    Helpers helpers;
    const std::uint64_t wanted = std::min<std::uint64_t>(static_cast<std::uint64_t>(threads_), slices);
    for (std::uint64_t i = 1; i < wanted; ++i) {
      try {
        helpers.threads.emplace_back(work, std::ref(workspaces_[i]));
      } catch (const std::system_error&) {
        break;  // with fewer threads it takes longer
      }
    }
    work(workspaces_[0]);
    helpers.join();
    return usable;
  }

  bool convert_slice(const gguf::PreparedTensor& tensor, std::span<const std::byte> source, std::uint64_t first,
                     std::uint64_t count, std::vector<float>& values) {
    const gguf::TypeId from = tensor.source->type->id;
    const std::byte* in = source.data() + bytes_of(from, first);
    values.resize(kSliceElements);
    if (from == gguf::TypeId::kF32) {
      std::memcpy(values.data(), in, count * sizeof(float));  // the file may be aligned to less than a float
    } else {
      ggml_get_type_traits(ggml_type_of(from))->to_float(in, values.data(), static_cast<std::int64_t>(count));
    }
    if (!all_usable(std::span(values).first(count))) return false;
    ggml_quantize_chunk(ggml_type_of(tensor.type), values.data(), output_.data() + bytes_of(tensor.type, first), 0, 1,
                        static_cast<std::int64_t>(count), nullptr);
    return true;
  }

  // `read`: the part of the source that the output came from.
  Status write(std::span<const std::byte> output, std::span<const std::byte> read) {
    KAZEIA_TRY(writer_.write(output));
    drop_pages(read);
    done_bytes_ += read.size();
    if (options_.on_progress) options_.on_progress(done_bytes_, total_bytes_);
    if (options_.cancel != nullptr && options_.cancel->requested()) {
      return Error(ErrorCode::kCancelled, "stopped; nothing was written");
    }
    return {};
  }

  gguf::Writer& writer_;
  const QuantiseOptions& options_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  int threads_ = 1;
  std::vector<std::vector<float>> workspaces_;  // one per thread
  std::vector<std::byte> output_;               // one piece
};

}  // namespace

Status quantise(const gguf::ModelFile& source, const gguf::Preparation& preparation, gguf::Writer& writer,
                const QuantiseOptions& options) {
  Quantiser quantiser(writer, options, preparation.bytes_before);
  for (const gguf::PreparedTensor& tensor : preparation.tensors) {
    const std::span<const std::byte> data = source.parts()[tensor.part].data(*tensor.source);
    KAZEIA_TRY(tensor.changes() ? quantiser.convert(tensor, data) : quantiser.copy(data));
  }
  return {};
}

}  // namespace kazeia
