// One part of an inference state on disk: attention rows of some tokens, or the recurrent state after some token.
// Format: docs/session_format.md.
//
// A file is trusted as far as it was checked: open() checks everything but the payload, check() the payload. The caller
// hands nothing of a file to the inference library before both succeeded.
//
// Files stay mapped: one that is cut while it is open ends the program with SIGBUS. They are private (mode 0600) and
// only ever replaced by a rename, so nothing of ours does that.
//
// Threads: one at a time for every object here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "engine/state_parts.h"
#include "engine/token.h"

namespace kazeia {

// XXH3-128 of the tokens before a position, as little-endian 32-bit numbers: names everything that a state at that
// position depends on, besides the StateOrigin.
using PrefixHash = std::array<std::uint64_t, 2>;
PrefixHash hash_of_prefix(std::span<const Token> tokens);
// hash_of_prefix(tokens.first(position)) for each of the ascending `positions`, none behind the end, in one pass.
std::vector<PrefixHash> hashes_of_prefixes(std::span<const Token> tokens, std::span<const std::size_t> positions);

// States of the same origin are interchangeable. Names have at most 256 bytes; those of a file may hold any bytes.
struct StateOrigin {
  std::string model_hash;        // 32 hex digits
  std::string engine_version;    // "0.1.0"
  std::string upstream_version;  // "llama.cpp 0.5.0, ggml 0.24.0"
  StateLayout layout;            // KV types and row sizes

  bool operator==(const StateOrigin&) const = default;
};

enum class PartKind : std::uint32_t { kAttention = 1, kRecurrent = 2 };

struct PartHeader {
  PartKind kind = PartKind::kAttention;
  std::size_t from = 0;  // first token whose rows are in it, below `to`; equal to `to` for a recurrent state
  std::size_t to = 0;    // one behind the last token that it knows; 1 to 2^24
  PrefixHash before{};   // of the tokens before `from`
  PrefixHash after{};    // of the tokens before `to`
  bool half = false;     // recurrent only: f32 values are stored as f16
  std::uint32_t context_tokens = 0;  // of the timeline that wrote it; for people

  bool operator==(const PartHeader&) const = default;
};

// Bytes of the payload of such a part. Attention: of every tensor in layout.attention the rows of [from, to), in that
// order. Recurrent: of every tensor in layout.recurrent its row (f32 ones halved if `half`). 2^64 - 1 if it is more.
std::uint64_t payload_bytes(const PartHeader& header, const StateLayout& layout);

class StateFile {
 public:
  // Maps the file and checks all but the payload: magic, version, sizes, header checksum, ranges, the layout's
  // plausibility, and the hashes as far as the tokens in the file tell them: those of a part from 0 on. That `before`
  // of a later part, and `after` of any recurrent one, fit the caller's tokens is for the caller to compare. kFile with
  // one sentence: missing, damaged, truncated, of another version.
  static Result<StateFile> open(const std::string& path);
  // The same for a file's bytes, which must outlive the result; errors call them `path`.
  static Result<StateFile> parse(std::span<const std::byte> bytes, const std::string& path);

  const StateOrigin& origin() const { return origin_; }
  const PartHeader& header() const { return header_; }
  const Tokens& tokens() const { return tokens_; }  // [to - from] for attention, empty for recurrent; none below 0
  std::span<const std::byte> payload() const { return payload_; }  // [payload_bytes(header, layout)], page-aligned
  const std::string& path() const { return path_; }

  // Compares the payload with its checksums; kFile if it is damaged. After a success it only says so again, without
  // a look at pages that left memory since. As fast as the file can be read: what is not in memory comes from the disk.
  Status check();

 private:
  StateFile() = default;
  std::string path_;
  std::optional<MappedFile> file_;
  StateOrigin origin_;
  PartHeader header_;
  Tokens tokens_;
  std::span<const std::byte> payload_;
  std::span<const std::byte> sums_;  // one XXH3-64 per chunk of the payload
  bool checked_ = false;
};

// Writes beside `path` and gives the file its name in commit() (mode 0600): a file with that name is whole. Without a
// commit, or after an error, the destructor leaves nothing behind. Holds 1 MiB of the payload in memory.
class StateFileWriter {
 public:
  // `tokens` as StateFile::tokens(). kUsage for what open() would refuse; kWrite, also if the disk has no room for it.
  static Result<StateFileWriter> create(const std::string& path, const StateOrigin& origin, const PartHeader& header,
                                        std::span<const Token> tokens);
  StateFileWriter(StateFileWriter&&) noexcept;
  StateFileWriter& operator=(StateFileWriter&&) = delete;
  ~StateFileWriter();

  // The payload in pieces of any size, in order. kWrite, also for more than payload_bytes(); sticky.
  Status write(std::span<const std::byte> payload);
  // Flushes to the disk, which may take long. Call once. kWrite, also if the payload is not complete.
  Status commit();

 private:
  struct Progress;
  explicit StateFileWriter(std::unique_ptr<Progress> progress);
  std::unique_ptr<Progress> progress_;
};

}  // namespace kazeia
