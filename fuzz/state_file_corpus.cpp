// Writes the seeds of state_file_fuzz, each as a file and as its content: `state_file_corpus OUT_FOLDER`.

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/files.h"
#include "session/state_file.h"

namespace {

using namespace kazeia;

constexpr std::size_t kTailBytes = 16;  // the sums of a payload of one chunk

struct Seed {
  std::string name;
  PartHeader header;
  Tokens tokens;
  StateLayout layout;
};

std::vector<Seed> seeds() {
  const StateLayout mixed{{{1, 6}, {8, 34}}, {{0, 12}, {1, 4}}};
  const Tokens few = {5, 0, 151643};
  const Tokens many(1100, 7);  // a head of two pages
  return {
      {"attention", {PartKind::kAttention, 0, 3, hash_of_prefix({}), hash_of_prefix(few), false, 512}, few, mixed},
      {"later", {PartKind::kAttention, 7, 10, {1, 2}, {3, 4}, false, 512}, few, mixed},
      {"long", {PartKind::kAttention, 1, 1101, {1, 2}, {3, 4}, false, 8192}, many, {{{1, 2}}, {}}},
      {"recurrent", {PartKind::kRecurrent, 9, 9, {5, 6}, {5, 6}, false, 512}, {}, mixed},
      {"half", {PartKind::kRecurrent, 9, 9, {5, 6}, {5, 6}, true, 512}, {}, mixed},
  };
}

Status save(const std::string& path, const std::string& bytes) {
  KAZEIA_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path));
  KAZEIA_TRY(file.write(bytes));
  return file.commit();
}

// As state_file_fuzz takes it apart: the head's length, the head without what follows from it, the payload.
std::string content_of(const std::string& file, std::size_t payload_bytes) {
  const std::size_t head_bytes = file.size() - payload_bytes - kTailBytes;
  std::string head = file.substr(0, head_bytes - 8);
  head.resize(head.find_last_not_of('\0') + 1);
  const char length[2] = {static_cast<char>(head.size() & 0xff), static_cast<char>(head.size() >> 8)};
  return std::string(length, 2) + head + file.substr(head_bytes, payload_bytes);
}

Status write(const std::string& folder, const Seed& seed) {
  const std::string path = fmt::format("{}/{}.state", folder, seed.name);
  const StateOrigin origin{"0123456789abcdef0123456789abcdef", "0.1.0", "llama.cpp 1, ggml 2", seed.layout};
  const std::vector<std::byte> payload(payload_bytes(seed.header, seed.layout), std::byte{3});
  KAZEIA_ASSIGN(StateFileWriter writer, StateFileWriter::create(path, origin, seed.header, seed.tokens));
  KAZEIA_TRY(writer.write(payload));
  KAZEIA_TRY(writer.commit());
  KAZEIA_ASSIGN(const std::string file, read_text_file(path, 1 << 20));
  return save(fmt::format("{}/{}.content", folder, seed.name), content_of(file, payload.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (const Seed& seed : seeds()) {
    const Status written = write(argv[1], seed);
    if (!written.ok()) {
      fmt::print(stderr, "{}\n", written.error().sentence());
      return 1;
    }
  }
  return 0;
}
