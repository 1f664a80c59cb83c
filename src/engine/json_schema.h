// From a JSON schema to a grammar.
#pragma once

#include <string>

#include "base/result.h"

namespace kazeia {

// GBNF for the JSON texts that satisfy the schema ("{}" = any JSON value). kUsage if it is not JSON, nested too deeply,
// or contains something that upstream's converter does not support: a constraint that would be ignored is refused.
Result<std::string> gbnf_from_json_schema(const std::string& json_schema);

}  // namespace kazeia
