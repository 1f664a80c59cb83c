#include "emulated_dsp/batch.h"

#include <ggml.h>

#include <cstring>
#include <string>

#include "emulated_dsp/tile_reader.h"

namespace kazeia::emulated_dsp {
namespace {

constexpr std::uint32_t kKnownTensorFlags = HTP_TENSOR_WEIGHT | HTP_TENSOR_REPACK | HTP_TENSOR_FENCE;

// Types the host sends: F32, F16, integers, and the quantised ones (plain or in tiles).
bool known_type(std::uint32_t type) {
  switch (type) {
    case GGML_TYPE_F32:
    case GGML_TYPE_F16:
    case GGML_TYPE_I8:
    case GGML_TYPE_I32:
    case GGML_TYPE_I64:
    case GGML_TYPE_Q8_0:
      return true;
    default:
      return tile_format(type).has_value();
  }
}

// Strides and sizes are checked in 128 bits, so that no product of host values can wrap.
__extension__ using Wide = unsigned __int128;

const char* check_tiles(const Tensor& tensor, Wide room) {
  const auto format = tile_format(tensor.type);
  if (!format) return "tiles of a type that has no tiles";
  if (tensor.ne[0] % 32 != 0 || tensor.ne[1] % 32 != 0) return "tiles that are not padded to 32";
  const Wide matrix = Wide(static_cast<std::uint64_t>(tensor.ne[0] / 32)) *
                      static_cast<std::uint64_t>(tensor.ne[1] / 32) * format->tile_bytes;
  if (Wide(tensor.nb[2]) != matrix) return "a tile matrix whose stride is not its size";
  if (Wide(tensor.nb[3]) != matrix * static_cast<std::uint64_t>(tensor.ne[2])) return "tile strides";
  if (matrix * static_cast<std::uint64_t>(tensor.ne[2]) * static_cast<std::uint64_t>(tensor.ne[3]) > room) {
    return "tiles beyond their buffer";
  }
  return nullptr;
}

const char* check_strided(const Tensor& tensor, Wide room) {
  const auto type = static_cast<ggml_type>(tensor.type);
  const std::int64_t block = ggml_blck_size(type);
  if (tensor.ne[0] % block != 0) return "a row that is not a whole number of blocks";
  Wide last = ggml_type_size(type);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto steps = static_cast<std::uint64_t>(i == 0 ? tensor.ne[0] / block - 1 : tensor.ne[i] - 1);
    last += Wide(steps) * tensor.nb[i];
  }
  if (last > room) return "a tensor beyond its buffer";
  // Small strides may repeat elements, but not so that a few bytes stand for billions of them.
  Wide elements = 1;
  for (const std::int64_t count : tensor.ne) elements *= static_cast<std::uint64_t>(count);
  if (elements > room) return "more elements than its buffer has bytes";
  const std::size_t alignment = tensor.type == GGML_TYPE_F16 || block != 1 ? 2 : ggml_type_size(type);
  for (std::size_t i = 0; i < 4; ++i) {
    if (tensor.ne[i] > 1 && tensor.nb[i] % alignment != 0) return "a stride that is not a multiple of the element";
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % alignment != 0) return "a misaligned tensor";
  return nullptr;
}

const char* resolve(const htp_tensor& record, std::span<const Memory::Buffer> buffers, Tensor& tensor) {
  if (record.bi >= buffers.size()) return "a buffer index beyond the batch's buffers";
  const Memory::Buffer& buffer = buffers[record.bi];
  if ((record.flags & ~kKnownTensorFlags) != 0) return "unknown tensor flags";
  if (!known_type(record.type)) return "an unknown tensor type";
  if (record.data >= buffer.size) return "an offset beyond the buffer";
  tensor.data = buffer.base + record.data;
  tensor.type = record.type;
  tensor.tiled = (record.flags & HTP_TENSOR_REPACK) != 0;
  tensor.fence = (record.flags & HTP_TENSOR_FENCE) != 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (record.ne[i] == 0) return "an empty tensor";
    tensor.ne[i] = record.ne[i];
    tensor.nb[i] = record.nb[i];
  }
  const Wide room = buffer.size - record.data;
  if (record.size > room) return "a size beyond the buffer";
  // A fence is two words, whatever its record says.
  if (tensor.fence && room < 2 * sizeof(std::uint32_t)) return "a fence beyond its buffer";
  return tensor.tiled ? check_tiles(tensor, room) : check_strided(tensor, room);
}

const char* resolve(const htp_op_desc& record, std::span<const Tensor> tensors, Op& op) {
  if (record.opcode >= HTP_OP_INVALID) return "an unknown op code";
  op.opcode = record.opcode;
  std::memcpy(op.params.data(), record.params, sizeof(record.params));
  for (std::size_t i = 0; i < op.src.size(); ++i) {
    if (record.src[i] == kNoTensor) continue;
    if (record.src[i] >= tensors.size()) return "a source beyond the batch's tensors";
    op.src[i] = &tensors[record.src[i]];
  }
  for (std::size_t i = 0; i < op.dst.size(); ++i) {
    if (record.dst[i] == kNoTensor) continue;
    if (record.dst[i] >= tensors.size()) return "a destination beyond the batch's tensors";
    op.dst[i] = &tensors[record.dst[i]];
  }
  return nullptr;
}

// The block is in memory that the host may still write: every record is copied out once, checked and used from there.
template <typename Record>
Record record_at(const std::uint8_t* records, std::size_t index) {
  Record record;
  std::memcpy(&record, records + index * sizeof(Record), sizeof(Record));
  return record;
}

}  // namespace

std::size_t block_bytes(const htp_opbatch_req& request) {
  return sizeof(htp_buf_desc) * request.n_bufs + sizeof(htp_tensor) * std::size_t{request.n_tensors} +
         (sizeof(htp_op_desc) + sizeof(htp_prof_desc)) * std::size_t{request.n_ops} +
         (HTP_MAX_NTHREADS + 1) * sizeof(htp_trace_desc) * std::size_t{request.n_traces};
}

std::optional<Batch> read_batch(const htp_opbatch_req& request, std::uint8_t* block, const BufferLookup& lookup,
                                std::string& problem) {
  const auto refuse = [&problem](const char* what, std::size_t index, const char* why) {
    problem = std::string(what) + " " + std::to_string(index) + ": " + why;
    return std::nullopt;
  };
  if (request.n_bufs > HTP_OP_MAX_BUFS) return refuse("batch with buffers", request.n_bufs, "too many");
  if (request.n_tensors > HTP_OP_MAX_TENSORS) return refuse("batch with tensors", request.n_tensors, "too many");

  const std::uint8_t* const tensor_records = block + sizeof(htp_buf_desc) * request.n_bufs;
  const std::uint8_t* const op_records = tensor_records + sizeof(htp_tensor) * std::size_t{request.n_tensors};
  std::uint8_t* const profile = block + (op_records - block) + sizeof(htp_op_desc) * std::size_t{request.n_ops};

  std::vector<Memory::Buffer> buffers;
  for (std::size_t i = 0; i < request.n_bufs; ++i) {
    const auto record = record_at<htp_buf_desc>(block, i);
    const auto buffer = lookup(record);
    if (!buffer) return refuse("buffer", i, "not mapped, freed, or replaced");
    if (record.flags != 0) return refuse("buffer", i, "flags that this architecture does not have");
    if (record.size > buffer->size) return refuse("buffer", i, "larger than its memory");
    buffers.push_back(*buffer);
  }

  Batch batch;
  batch.tensors.resize(request.n_tensors);
  for (std::size_t i = 0; i < request.n_tensors; ++i) {
    const char* why = resolve(record_at<htp_tensor>(tensor_records, i), buffers, batch.tensors[i]);
    if (why != nullptr) return refuse("tensor", i, why);
  }
  batch.ops.resize(request.n_ops);
  for (std::size_t i = 0; i < request.n_ops; ++i) {
    const char* why = resolve(record_at<htp_op_desc>(op_records, i), batch.tensors, batch.ops[i]);
    if (why != nullptr) return refuse("op", i, why);
  }
  batch.profile = {reinterpret_cast<htp_prof_desc*>(profile), request.n_ops};
  return batch;
}

}  // namespace kazeia::emulated_dsp
