#include "session/state_file.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kazeia {
namespace {

// Numbers lie in the file as they do in memory.
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));

constexpr char kMagic[8] = {'K', 'Z', 'S', 'T', 'A', 'T', 'E', '\n'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint32_t kHalfFlag = 1;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSumBytes = 8;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kTensorBytes = 12;
constexpr std::int32_t kF32 = 0;  // ggml's number

// No real state comes near these. Within them no sum or product below overflows.
constexpr std::size_t kMostTensors = 4096;
constexpr std::size_t kMostTokens = std::size_t{1} << 24;
constexpr std::size_t kMostNameBytes = 256;
constexpr std::int32_t kMostType = 255;
constexpr std::uint64_t kMostRowBytes = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostPayloadBytes = std::uint64_t{1} << 48;

// The begin of a file. Behind it: the tensors, the tokens, the names, zeros up to a page's end, and in the last 8 of
// them the checksum of all that.
struct Fixed {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::uint32_t flags;
  std::uint32_t context_tokens;
  std::uint64_t from;
  std::uint64_t to;
  PrefixHash before;
  PrefixHash after;
  std::uint32_t attention_tensors;
  std::uint32_t recurrent_tensors;
  std::uint32_t tokens;
  std::uint32_t name_bytes[3];  // model hash, engine, upstream
};
static_assert(sizeof(Fixed) == 96);

// Too large stays too large.
std::uint32_t counted(std::size_t count) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(count, std::numeric_limits<std::uint32_t>::max()));
}

Fixed fixed_of(const StateOrigin& origin, const PartHeader& header, std::size_t tokens) {
  Fixed fixed{};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  fixed.version = kFormatVersion;
  fixed.kind = static_cast<std::uint32_t>(header.kind);
  fixed.flags = header.half ? kHalfFlag : 0;
  fixed.context_tokens = header.context_tokens;
  fixed.from = header.from;
  fixed.to = header.to;
  fixed.before = header.before;
  fixed.after = header.after;
  fixed.attention_tensors = counted(origin.layout.attention.size());
  fixed.recurrent_tensors = counted(origin.layout.recurrent.size());
  fixed.tokens = counted(tokens);
  fixed.name_bytes[0] = counted(origin.model_hash.size());
  fixed.name_bytes[1] = counted(origin.engine_version.size());
  fixed.name_bytes[2] = counted(origin.upstream_version.size());
  return fixed;
}

bool is_attention(const Fixed& fixed) {
  return fixed.kind == static_cast<std::uint32_t>(PartKind::kAttention);
}

// What cannot be, or nullptr.
const char* fault_of(const Fixed& fixed) {
  const bool attention = is_attention(fixed);
  if (!attention && fixed.kind != static_cast<std::uint32_t>(PartKind::kRecurrent)) return "kind";
  if ((fixed.flags & ~kHalfFlag) != 0 || (attention && fixed.flags != 0)) return "flags";
  if (fixed.from > fixed.to || fixed.to > kMostTokens || (fixed.from == fixed.to) == attention || fixed.to == 0) {
    return "token range";
  }
  if (fixed.tokens != (attention ? fixed.to - fixed.from : 0)) return "token count";
  if (fixed.attention_tensors > kMostTensors || fixed.recurrent_tensors > kMostTensors ||
      (attention ? fixed.attention_tensors : fixed.recurrent_tensors) == 0) {
    return "tensor count";
  }
  if (std::any_of(std::begin(fixed.name_bytes), std::end(fixed.name_bytes),
                  [](std::uint32_t bytes) { return bytes > kMostNameBytes; })) {
    return "name length";
  }
  if (!attention && fixed.before != fixed.after) return "prefix hash";
  return nullptr;
}

const char* fault_of(const PartHeader& header, const StateLayout& layout, std::span<const Token> tokens) {
  for (const std::vector<StateRows>* tensors : {&layout.attention, &layout.recurrent}) {
    for (const StateRows& tensor : *tensors) {
      if (tensor.type < 0 || tensor.type > kMostType) return "tensor type";
      if (tensor.row_bytes < 1 || tensor.row_bytes > kMostRowBytes) return "row size";
      if (header.half && tensor.type == kF32 && tensor.row_bytes % 4 != 0) return "row size";
    }
  }
  if (payload_bytes(header, layout) > kMostPayloadBytes) return "payload size";
  if (std::any_of(tokens.begin(), tokens.end(), [](Token token) { return token < 0; })) return "token";
  if (header.from == 0 && (header.before != hash_of_prefix({}) || header.after != hash_of_prefix(tokens))) {
    return "prefix hash";
  }
  return nullptr;
}

// Of a header without fault: 64 MiB at most.
std::size_t head_bytes(const Fixed& fixed) {
  const std::size_t tensors = std::size_t{fixed.attention_tensors} + fixed.recurrent_tensors;
  std::size_t bytes = sizeof fixed + tensors * kTensorBytes + fixed.tokens * sizeof(Token);
  for (const std::uint32_t name : fixed.name_bytes) bytes += name;
  return (bytes + kSumBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::size_t chunk_count(std::uint64_t payload) {
  return payload / kChunkBytes + (payload % kChunkBytes == 0 ? 0 : 1);
}

std::size_t tail_bytes(std::uint64_t payload) {
  return chunk_count(payload) * kSumBytes + kSumBytes;
}

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// The sum of the sums depends on the header's, so that no header fits another file's payload.
std::uint64_t sum_of_sums(std::span<const std::byte> sums, std::uint64_t head_sum) {
  return XXH3_64bits_withSeed(sums.data(), sums.size(), head_sum);
}

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

void append(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

std::string encode_head(const Fixed& fixed, const StateOrigin& origin, std::span<const Token> tokens) {
  const std::size_t bytes = head_bytes(fixed);
  std::string head;
  head.reserve(bytes);
  append(head, &fixed, sizeof fixed);
  for (const std::vector<StateRows>* tensors : {&origin.layout.attention, &origin.layout.recurrent}) {
    for (const StateRows& tensor : *tensors) {
      append(head, &tensor.type, sizeof tensor.type);
      append(head, &tensor.row_bytes, sizeof tensor.row_bytes);
    }
  }
  append(head, tokens.data(), tokens.size_bytes());
  head += origin.model_hash + origin.engine_version + origin.upstream_version;
  head.resize(bytes - kSumBytes);
  const std::uint64_t sum = XXH3_64bits(head.data(), head.size());
  append(head, &sum, sizeof sum);
  return head;
}

// Walks a head whose size was computed from what is taken here.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> rest) : rest_(rest) {}
  void take(void* out, std::size_t bytes) {
    if (bytes != 0) std::memcpy(out, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }
  std::vector<StateRows> tensors(std::size_t count) {
    std::vector<StateRows> tensors(count);
    for (StateRows& tensor : tensors) {
      take(&tensor.type, sizeof tensor.type);
      take(&tensor.row_bytes, sizeof tensor.row_bytes);
    }
    return tensors;
  }
  Tokens tokens(std::size_t count) {
    Tokens tokens(count);
    take(tokens.data(), count * sizeof(Token));
    return tokens;
  }
  std::string name(std::size_t bytes) {
    std::string name(bytes, '\0');
    take(name.data(), bytes);
    return name;
  }
  bool only_zeros_left() const {
    return std::all_of(rest_.begin(), rest_.end(), [](std::byte byte) { return byte == std::byte{0}; });
  }

 private:
  std::span<const std::byte> rest_;
};

Error refused(const std::string& path, std::string_view what) {
  return Error(ErrorCode::kFile, fmt::format("the state file '{}' {}", path, what),
               "Delete it; what it holds is computed again when it is needed");
}

Error damaged(const std::string& path, std::string_view where) {
  return refused(path, fmt::format("is damaged ({})", where));
}

PrefixHash prefix_hash(const XXH128_hash_t& hash) {
  return {hash.low64, hash.high64};
}

}  // namespace

PrefixHash hash_of_prefix(std::span<const Token> tokens) {
  return prefix_hash(XXH3_128bits(tokens.data(), tokens.size_bytes()));
}

std::vector<PrefixHash> hashes_of_prefixes(std::span<const Token> tokens, std::span<const std::size_t> positions) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  std::vector<PrefixHash> hashes;
  hashes.reserve(positions.size());
  std::size_t done = 0;
  for (const std::size_t position : positions) {
    assert(position >= done && position <= tokens.size());
    const std::span<const Token> next = tokens.subspan(done, position - done);
    if (!next.empty()) XXH3_128bits_update(&state, next.data(), next.size_bytes());
    hashes.push_back(prefix_hash(XXH3_128bits_digest(&state)));
    done = position;
  }
  return hashes;
}

std::uint64_t payload_bytes(const PartHeader& header, const StateLayout& layout) {
  const bool attention = header.kind == PartKind::kAttention;
  const std::uint64_t rows = !attention ? 1 : header.to > header.from ? header.to - header.from : 0;
  std::uint64_t bytes = 0;
  for (const StateRows& tensor : attention ? layout.attention : layout.recurrent) {
    const bool halved = !attention && header.half && tensor.type == kF32;
    std::uint64_t tensor_bytes = 0;
    if (__builtin_mul_overflow(halved ? tensor.row_bytes / 2 : tensor.row_bytes, rows, &tensor_bytes) ||
        __builtin_add_overflow(bytes, tensor_bytes, &bytes)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return bytes;
}

Result<StateFile> StateFile::open(const std::string& path) {
  KAZEIA_ASSIGN(MappedFile mapped, MappedFile::open(path));
  KAZEIA_ASSIGN(StateFile file, parse(mapped.bytes(), path));
  file.file_ = std::move(mapped);
  return file;
}

Result<StateFile> StateFile::parse(std::span<const std::byte> bytes, const std::string& path) {
  constexpr std::string_view kTruncated = "is truncated";
  Fixed fixed{};
  const std::size_t there = std::min(bytes.size(), sizeof fixed);
  if (there == 0) return refused(path, kTruncated);
  std::memcpy(&fixed, bytes.data(), there);
  if (std::memcmp(fixed.magic, kMagic, std::min(there, sizeof kMagic)) != 0) {
    return Error(ErrorCode::kFile, fmt::format("the file '{}' is not a state file", path));
  }
  if (there >= offsetof(Fixed, kind) && fixed.version != kFormatVersion) {
    return refused(path, fmt::format("was written by another version of the format ({}, this program reads {})",
                                     fixed.version, kFormatVersion));
  }
  if (there < sizeof fixed) return refused(path, kTruncated);
  if (const char* fault = fault_of(fixed)) return damaged(path, fmt::format("header: {}", fault));
  const std::size_t head = head_bytes(fixed);
  if (bytes.size() < head) return refused(path, kTruncated);
  const std::uint64_t head_sum = number_at(bytes, head - kSumBytes);
  if (head_sum != sum_of(bytes.first(head - kSumBytes))) return damaged(path, "header");

  StateFile file;
  file.path_ = path;
  Cursor cursor(bytes.subspan(sizeof fixed, head - kSumBytes - sizeof fixed));
  file.origin_.layout.attention = cursor.tensors(fixed.attention_tensors);
  file.origin_.layout.recurrent = cursor.tensors(fixed.recurrent_tensors);
  file.tokens_ = cursor.tokens(fixed.tokens);
  file.origin_.model_hash = cursor.name(fixed.name_bytes[0]);
  file.origin_.engine_version = cursor.name(fixed.name_bytes[1]);
  file.origin_.upstream_version = cursor.name(fixed.name_bytes[2]);
  if (!cursor.only_zeros_left()) return damaged(path, "header: padding");
  file.header_ = {static_cast<PartKind>(fixed.kind), fixed.from,          fixed.to, fixed.before, fixed.after,
                  (fixed.flags & kHalfFlag) != 0,    fixed.context_tokens};
  if (const char* fault = fault_of(file.header_, file.origin_.layout, file.tokens_)) {
    return damaged(path, fmt::format("header: {}", fault));
  }
  const std::uint64_t payload = payload_bytes(file.header_, file.origin_.layout);
  const std::uint64_t whole = head + payload + tail_bytes(payload);
  if (bytes.size() < whole) return refused(path, kTruncated);
  if (bytes.size() > whole) return damaged(path, "longer than its header says");
  file.payload_ = bytes.subspan(head, payload);
  file.sums_ = bytes.subspan(head + payload, chunk_count(payload) * kSumBytes);
  if (number_at(bytes, whole - kSumBytes) != sum_of_sums(file.sums_, head_sum)) return damaged(path, "checksums");
  return file;
}

Status StateFile::check() {
  if (checked_) return {};
  for (std::size_t at = 0, i = 0; at < payload_.size(); at += kChunkBytes, ++i) {
    const auto chunk = payload_.subspan(at, std::min(kChunkBytes, payload_.size() - at));
    if (sum_of(chunk) != number_at(sums_, i * kSumBytes)) return damaged(path_, "payload");
  }
  checked_ = true;
  return {};
}

struct StateFileWriter::Progress {
  std::string path;
  AtomicFileWriter file;
  std::uint64_t head_sum;
  std::uint64_t left_bytes;  // of the payload, from the caller
  std::vector<std::uint64_t> sums;
  std::vector<std::byte> chunk;  // the one that is not complete; pieces may be a few bytes each
  std::optional<Error> error;

  Status fail(Error failure) {
    error = std::move(failure);
    return *error;
  }
  Status put(std::span<const std::byte> bytes) {
    const Status written = file.write(bytes);
    return written.ok() ? written : fail(written.error());
  }
  Status put_chunk(std::span<const std::byte> bytes) {
    sums.push_back(sum_of(bytes));
    return put(bytes);
  }
};

StateFileWriter::StateFileWriter(std::unique_ptr<Progress> progress) : progress_(std::move(progress)) {}
StateFileWriter::StateFileWriter(StateFileWriter&&) noexcept = default;
StateFileWriter::~StateFileWriter() = default;

Result<StateFileWriter> StateFileWriter::create(const std::string& path, const StateOrigin& origin,
                                                const PartHeader& header, std::span<const Token> tokens) {
  const Fixed fixed = fixed_of(origin, header, tokens.size());
  const char* fault = fault_of(fixed);
  if (fault == nullptr) fault = fault_of(header, origin.layout, tokens);
  if (fault != nullptr) {
    return Error(ErrorCode::kUsage, fmt::format("the state file '{}' cannot have such a {}", path, fault));
  }
  const std::string head = encode_head(fixed, origin, tokens);
  const std::uint64_t payload = payload_bytes(header, origin.layout);
  KAZEIA_TRY(check_output(path, head.size() + payload + tail_bytes(payload), true));
  KAZEIA_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path, 0600));
  KAZEIA_TRY(file.write(head));
  const std::uint64_t head_sum = number_at(std::as_bytes(std::span(head)), head.size() - kSumBytes);
  std::unique_ptr<Progress> progress(new Progress{path, std::move(file), head_sum, payload, {}, {}, {}});
  progress->sums.reserve(chunk_count(payload));
  progress->chunk.reserve(std::min<std::uint64_t>(payload, kChunkBytes));
  return StateFileWriter(std::move(progress));
}

Status StateFileWriter::write(std::span<const std::byte> payload) {
  Progress& to = *progress_;
  if (to.error) return *to.error;
  if (payload.size() > to.left_bytes) {
    return to.fail(Error(ErrorCode::kWrite, fmt::format("the state file '{}' got more than its payload", to.path)));
  }
  to.left_bytes -= payload.size();
  while (!payload.empty()) {
    if (to.chunk.empty() && payload.size() >= kChunkBytes) {
      KAZEIA_TRY(to.put_chunk(payload.first(kChunkBytes)));
      payload = payload.subspan(kChunkBytes);
      continue;
    }
    const auto piece = payload.first(std::min(payload.size(), kChunkBytes - to.chunk.size()));
    to.chunk.insert(to.chunk.end(), piece.begin(), piece.end());
    payload = payload.subspan(piece.size());
    if (to.chunk.size() == kChunkBytes) {
      KAZEIA_TRY(to.put_chunk(to.chunk));
      to.chunk.clear();
    }
  }
  return {};
}

Status StateFileWriter::commit() {
  Progress& to = *progress_;
  if (to.error) return *to.error;
  if (to.left_bytes != 0) {
    return to.fail(Error(ErrorCode::kWrite,
                         fmt::format("the state file '{}' lacks {} bytes of its payload", to.path, to.left_bytes)));
  }
  if (!to.chunk.empty()) KAZEIA_TRY(to.put_chunk(to.chunk));
  const auto sums = std::as_bytes(std::span(to.sums));
  const std::uint64_t sum = sum_of_sums(sums, to.head_sum);
  KAZEIA_TRY(to.put(sums));
  KAZEIA_TRY(to.put(std::as_bytes(std::span(&sum, 1))));
  const Status committed = to.file.commit();
  return committed.ok() ? committed : to.fail(committed.error());
}

}  // namespace kazeia
