// What `kazeia prepare` says about a plan and about a finished file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/perplexity.h"
#include "gguf/preparation.h"
#include "gguf/reader.h"

namespace kazeia::cli {

struct PrepareReport {
  const gguf::ModelFile* source = nullptr;
  const gguf::Preparation* preparation = nullptr;
  std::string output_path;  // may be empty for a dry run
  std::uint64_t output_bytes = 0;
  bool dry_run = false;
  bool written = false;
  std::optional<Comparison> comparison;
  double max_ratio = 0;
  double max_divergence = 0;
  double quantise_ms = 0;
  double check_ms = 0;
};

// For people: a dry run lists every tensor that would change.
std::string prepare_text(const PrepareReport& report);
// One object, every tensor in it.
std::string prepare_json(const PrepareReport& report);

}  // namespace kazeia::cli
