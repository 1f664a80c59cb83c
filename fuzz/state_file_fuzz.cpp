// libFuzzer target of the state file reader: no input may crash, read outside itself, overflow, or be accepted without
// being what its header says. An input is tried as a file, and as the content of one whose checksums are right:
// 2 bytes length of the head, the head without its padding, the payload.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "session/state_file.h"

namespace {

using namespace kazeia;
using Bytes = std::span<const std::byte>;

volatile std::uint64_t sink;  // keeps the reads

void require(bool holds) {
  if (!holds) std::abort();
}

void append_sum(std::vector<std::byte>& out, Bytes of, std::uint64_t seed = 0) {
  const std::uint64_t sum = XXH3_64bits_withSeed(of.data(), of.size(), seed);
  const Bytes bytes = std::as_bytes(std::span(&sum, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// docs/session_format.md; one chunk at most.
std::vector<std::byte> sealed(Bytes input) {
  if (input.size() < 2) return {};
  std::uint16_t length = 0;
  std::memcpy(&length, input.data(), sizeof length);
  input = input.subspan(sizeof length);
  const Bytes head = input.first(std::min<std::size_t>(length, input.size()));
  const Bytes payload = input.subspan(head.size());
  std::vector<std::byte> file(head.begin(), head.end());
  file.resize((file.size() + 8 + 4095) / 4096 * 4096 - 8);
  append_sum(file, file);
  std::uint64_t head_sum = 0;
  std::memcpy(&head_sum, file.data() + file.size() - sizeof head_sum, sizeof head_sum);
  file.insert(file.end(), payload.begin(), payload.end());
  std::vector<std::byte> sums;
  if (!payload.empty()) append_sum(sums, payload);
  file.insert(file.end(), sums.begin(), sums.end());
  append_sum(file, sums, head_sum);
  return file;
}

void try_file(Bytes bytes, bool checksums_are_right) {
  Result<StateFile> file = StateFile::parse(bytes, "input");
  if (!file.ok()) {
    require(!file.error().sentence().empty());
    return;
  }
  const PartHeader& header = file->header();
  const StateOrigin& origin = file->origin();
  const bool attention = header.kind == PartKind::kAttention;
  require(attention ? header.from < header.to && !header.half : header.from == header.to && header.to > 0);
  require(file->tokens().size() == (attention ? header.to - header.from : 0));
  require(header.from != 0 || header.after == hash_of_prefix(file->tokens()));
  require(file->payload().size() == payload_bytes(header, origin.layout));
  require(file->payload().size() < bytes.size());
  require(std::max({origin.model_hash.size(), origin.engine_version.size(), origin.upstream_version.size()}) <= 256);
  const bool intact = file->check().ok();
  require(intact || !checksums_are_right);
  for (const std::byte byte : file->payload()) sink = static_cast<std::uint64_t>(byte);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input = std::as_bytes(std::span(data, size));
  try_file(input, false);
  try_file(sealed(input), true);
  return 0;
}
