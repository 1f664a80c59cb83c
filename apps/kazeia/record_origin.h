// What every record says besides its figures: when, by what, on what, about which model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/record.h"

namespace kazeia::cli {

// Time, command, commit, versions, compiler and machine are filled in; of paths in the command only the last part, so
// that a record can be shown to anybody.
bench::Record begin_record(const std::string& kind);

struct ModelFacts {
  bench::ModelIdentity identity;  // its hash is missing: that takes a loaded model
  std::vector<std::string> parts;
  std::uint64_t weight_bytes = 0;
  std::uint64_t trained_context_tokens = 0;  // 0 = the file does not say
  bool recurrent = false;                    // it has layers with a state that cannot be cut back
};
// Reads the header only. Errors: kFile, kUnsupported.
Result<ModelFacts> read_model_facts(const std::string& path);

}  // namespace kazeia::cli
