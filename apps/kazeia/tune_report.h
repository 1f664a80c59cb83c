// What `kazeia tune` tells: before, after, and what there is.
#pragma once

#include <optional>
#include <string>

#include "bench/search.h"
#include "bench/tuned_profile.h"
#include "record_origin.h"
#include "tune_plan.h"

namespace kazeia::cli {

struct TuneReport {
  const TunePlan& plan;
  const bench::SearchResult& result;
  std::string model;    // the file's name
  double seconds = 0;   // that it took
  std::string profile;  // the file that was written; empty: none
  std::string kept;     // time of an older profile that stays; empty: there is none
};

std::string plan_text(const TunePlan& plan, double minutes);
std::string plan_json(const TunePlan& plan, double minutes);
std::string tune_text(const TuneReport& report);
std::string tune_json(const TuneReport& report);
std::string profile_text(const bench::TunedProfile& profile, const std::string& path);
std::string profile_json(const bench::TunedProfile& profile, const std::string& path);
std::string no_profile_json(const std::string& machine_id, const std::string& model_hash);

// The choices of a search, each with the newest of its proofs.
bench::TunedProfile profile_of(const bench::SearchResult& result, const bench::Record& origin);

}  // namespace kazeia::cli
