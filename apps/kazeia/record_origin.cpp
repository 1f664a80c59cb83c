#include "record_origin.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "bench/identity.h"
#include "commit.h"
#include "engine/backend.h"
#include "gguf/inspection.h"
#include "gguf/reader.h"
#include "npu/profile.h"

namespace kazeia::cli {
namespace {

// "--record=/home/me/x.jsonl" is "--record=x.jsonl".
std::string without_folders(const std::string& word) {
  const std::size_t slash = word.rfind('/');
  if (slash == std::string::npos || slash + 1 == word.size()) return word;
  const std::size_t equals = word.starts_with('-') ? word.find('=') : std::string::npos;
  return (equals < slash ? word.substr(0, equals + 1) : "") + word.substr(slash + 1);
}

// The words that this process was started with.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::string word = text.c_str() + at;
    at += word.size() + 1;
    words.push_back(without_folders(word));
  }
  if (words.empty()) words.emplace_back("kazeia");
  return words;
}

}  // namespace

bench::Record begin_record(const std::string& kind) {
  bench::Record record;
  record.time = npu::utc_now();
  record.kind = kind;
  record.command = command_line();
  const BuildCommit commit = build_commit();
  record.commit = commit.id;
  record.dirty = commit.dirty;
  record.engine_version = KAZEIA_VERSION;
  record.upstream_version = upstream_version();
  record.compiler = bench::compiler();
  record.flags = bench::compiler_flags();
  record.machine = bench::machine_identity();
  return record;
}

Result<ModelFacts> read_model_facts(const std::string& path) {
  KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(path));
  const gguf::Inspection inspection = gguf::inspect(file.parts());
  ModelFacts facts;
  facts.identity.file = std::filesystem::path(path).filename().string();
  facts.identity.architecture = inspection.architecture;
  for (const gguf::TypeShare& share : inspection.types) {
    facts.identity.tensor_bytes[std::string(share.type)] = share.bytes;
  }
  facts.parts = file.paths();
  facts.weight_bytes = inspection.tensor_bytes;
  facts.trained_context_tokens = inspection.context_tokens.value_or(0);
  facts.recurrent =
      inspection.layer_count(gguf::LayerKind::kRecurrent) + inspection.layer_count(gguf::LayerKind::kBoth) > 0;
  return facts;
}

}  // namespace kazeia::cli
