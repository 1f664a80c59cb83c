#include "bench/search.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bench/measuring_time.h"

namespace kazeia::bench {
namespace {

constexpr int kMostLevels = 4;
// One run of two that do the same differs by more than this with the noise that is accepted: what looks worse in the
// first look is not looked at again.
constexpr double kHopeless = 0.95;
// After so many values the defaults are run again, so that a machine that drifts does not favour the first ones.
constexpr std::size_t kBetweenDefaults = 4;
constexpr int kMostSpoilt = 3;  // rounds of one proof

struct Candidate {
  const SearchedSetting* setting = nullptr;
  std::string value;
  double score = 0;  // the highest ratio to the defaults in the last look; 0 = not looked at
};

// Configurations that take turns, and which of them are compared.
struct Race {
  std::vector<Choices> configurations;
  std::vector<std::vector<Sample>> samples;  // by configuration, by round
  std::vector<MachineMoment> moments;
  std::string disturbance;
  int rounds = 0;
};

// The whole of what is chosen, against the defaults and without each choice.
struct Confirmation {
  Race race;  // the whole, the defaults, and, of more than one choice, the whole without each of them
  Proof whole;
  std::vector<Proof> choices;  // in the order of choosing; empty if there is one, which is the whole then
};

class Search {
 public:
  Search(const std::vector<SearchedSetting>& settings, const SearchOptions& options, const SearchSeams& seams)
      : settings_(settings), options_(options), seams_(seams) {}

  Result<SearchResult> run();

 private:
  Status everything();
  // --- first looks
  Status screen();
  Status look_at(std::vector<Candidate*> group, int level);
  std::vector<Candidate> finalists() const;
  // --- proofs
  Status prove(const Candidate& candidate);
  Status confirm();
  Result<bool> measure_once_more(Confirmation& once_more);
  std::size_t worst_of(const std::vector<Proof>& choices) const;
  Status show(const SearchedSetting& setting);
  // True if the rounds were run; false if there is no time for them or they stay disturbed (then Race::disturbance).
  Result<bool> run_rounds(Race& race, int rounds);
  Proof proof_of(const Race& race, std::size_t tuned, std::size_t without, const Candidate* candidate) const;
  Status keep(Proof& proof);
  GainRules rules(std::vector<std::string> wanted) const;
  std::vector<std::string> wanted_of_chosen() const;
  void give_up(const std::string& setting, const std::string& reason);
  void give_up_everything(const std::string& reason);
  // --- time
  Result<Round> measure(const std::vector<Choices>& configurations, const Work& work);
  bool has_time(const std::vector<Choices>& configurations, int level, int rounds, double limit) const {
    return seams_.seconds() + time_.of(configurations, level) * rounds <= limit;
  }

  void tell(const std::string& sentence) const {
    if (seams_.tell) seams_.tell(sentence);
  }
  Finding& finding(const std::string& setting) {
    return *std::find_if(result_.findings.begin(), result_.findings.end(),
                         [&](const Finding& one) { return one.setting == setting; });
  }

  const std::vector<SearchedSetting>& settings_;
  const SearchOptions& options_;
  const SearchSeams& seams_;
  MeasuringTime time_;
  std::vector<Candidate> pool_;
  std::vector<Candidate> chosen_;  // in the order of choosing
  bool unproven_ = false;          // what is chosen was not proven as a whole since something was given up
  SearchResult result_;
};

Result<Round> Search::measure(const std::vector<Choices>& configurations, const Work& work) {
  const double began = seams_.seconds();
  Result<Round> round = seams_.measure(configurations, work);
  if (round.ok()) time_.learn(configurations, work.level, seams_.seconds() - began);
  return round;
}

GainRules Search::rules(std::vector<std::string> wanted) const {
  GainRules rules = options_.rules;
  rules.wanted = std::move(wanted);
  return rules;
}

// ---- first looks

// `group` wants a gain in the same figures, with the same work.
Status Search::look_at(std::vector<Candidate*> group, int level) {
  const Work work{level, group.front()->setting->figures};
  std::optional<Sample> defaults;
  for (std::size_t i = 0; i < group.size(); ++i) {
    Candidate& candidate = *group[i];
    const Choices choices{{candidate.setting->name, candidate.value}};
    if (!has_time({Choices(), choices}, level, 1, options_.seconds * options_.screening_share)) return {};
    if (i % kBetweenDefaults == 0) {
      KAZEIA_ASSIGN(Round round, measure({Choices()}, work));
      defaults = std::move(round.samples.front());
    }
    const Result<Round> round = measure({choices}, work);
    if (!round.ok() && round.error().code() == ErrorCode::kCancelled) return round.error();
    Finding& found = finding(candidate.setting->name);
    if (!round.ok()) {
      found = {candidate.setting->name, candidate.value, false, round.error().message()};
      candidate.score = -1;
      continue;
    }
    candidate.score = 0;
    for (const FigureGain& gain : gains_of({round->samples.front()}, {*defaults})) {
      const auto& figures = candidate.setting->figures;
      if (std::find(figures.begin(), figures.end(), gain.figure) != figures.end())
        candidate.score = std::max(candidate.score, gain.gain.median);
    }
  }
  return {};
}

Status Search::screen() {
  for (int level = 0; level < kMostLevels && !pool_.empty(); ++level) {
    tell(fmt::format("look {}: {} values", level + 1, pool_.size()));
    std::map<std::pair<int, std::vector<std::string>>, std::vector<Candidate*>> groups;
    for (Candidate& candidate : pool_) {
      groups[{std::max(level, candidate.setting->first_level), candidate.setting->figures}].push_back(&candidate);
    }
    for (const auto& [key, group] : groups) KAZEIA_TRY(look_at(group, key.first));
    std::stable_sort(pool_.begin(), pool_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    // Worst first, so that the best of each setting is what its finding tells.
    for (auto candidate = pool_.rbegin(); candidate != pool_.rend(); ++candidate) {
      if (candidate->score <= 0) continue;
      const bool promising = candidate->score > 1 + options_.rules.least;
      finding(candidate->setting->name) = {
          candidate->setting->name, candidate->value, false,
          fmt::format("{:.2f}x in a short look, {}", candidate->score, promising ? "not proven" : "no gain")};
    }
    const bool last = !has_time({Choices(), Choices()}, level + 1, 1, options_.seconds * options_.screening_share);
    if (!last) pool_.resize((pool_.size() + 1) / 2);
    std::erase_if(pool_, [](const Candidate& candidate) { return candidate.score < kHopeless; });
    if (last || (level > 0 && pool_.size() <= options_.finalists)) break;
  }
  return {};
}

// The best of each setting, the most promising first.
std::vector<Candidate> Search::finalists() const {
  std::vector<Candidate> best;
  for (const Candidate& candidate : pool_) {
    if (candidate.score <= 1 + options_.rules.least || best.size() == options_.finalists) continue;
    const bool taken = std::any_of(best.begin(), best.end(),
                                   [&](const Candidate& other) { return other.setting == candidate.setting; });
    if (!taken) best.push_back(candidate);
  }
  return best;
}

// ---- proofs

Result<bool> Search::run_rounds(Race& race, int rounds) {
  race.samples.resize(race.configurations.size());
  if (!has_time(race.configurations, kProofLevel, rounds, options_.seconds)) return false;
  for (int spoilt = 0; rounds > 0;) {
    if (!has_time(race.configurations, kProofLevel, 1, options_.seconds)) return false;
    KAZEIA_ASSIGN(Round round, measure(race.configurations, Work{}));
    if (!round.disturbance.empty()) {
      if (++spoilt < kMostSpoilt) continue;
      race.disturbance = round.disturbance;
      return false;
    }
    for (std::size_t i = 0; i < round.samples.size(); ++i) race.samples[i].push_back(std::move(round.samples[i]));
    race.moments.insert(race.moments.end(), round.moments.begin(), round.moments.end());
    ++race.rounds;
    --rounds;
  }
  return true;
}

std::vector<std::string> Search::wanted_of_chosen() const {
  std::vector<std::string> wanted;
  for (const Candidate& candidate : chosen_) {
    for (const std::string& figure : candidate.setting->figures) {
      if (std::find(wanted.begin(), wanted.end(), figure) == wanted.end()) wanted.push_back(figure);
    }
  }
  return wanted;
}

Proof Search::proof_of(const Race& race, std::size_t tuned, std::size_t without, const Candidate* candidate) const {
  Proof proof;
  std::vector<std::string> wanted = wanted_of_chosen();
  if (candidate != nullptr) {
    proof.setting = candidate->setting->name;
    proof.value = candidate->value;
    proof.instead = candidate->setting->instead;
    wanted = candidate->setting->figures;
  }
  proof.tuned = race.configurations[tuned];
  proof.without = race.configurations[without];
  proof.gains = gains_of(race.samples[tuned], race.samples[without]);
  proof.moments = race.moments;
  proof.judged = judge(proof.gains, rules(std::move(wanted)));
  return proof;
}

Status Search::keep(Proof& proof) {
  KAZEIA_ASSIGN(proof.record, seams_.keep(proof));
  return {};
}

void Search::give_up(const std::string& setting, const std::string& reason) {
  Finding& found = finding(setting);
  found.chosen = false;
  found.reason = reason;
  result_.chosen.erase(setting);
  std::erase_if(chosen_, [&](const Candidate& candidate) { return candidate.setting->name == setting; });
  std::erase_if(result_.proofs, [&](const Proof& proof) { return proof.setting == setting; });
}

Status Search::prove(const Candidate& candidate) {
  const std::string& name = candidate.setting->name;
  finding(name) = {name, candidate.value, false, "there was no time left to prove it"};
  Race race;
  race.configurations = {result_.chosen, result_.chosen};
  race.configurations.front()[name] = candidate.value;
  const bool first = result_.chosen.empty();
  if (!first) race.configurations.emplace_back();
  // What is chosen besides is confirmed afterwards, which takes time, too.
  std::vector<Choices> afterwards = race.configurations;
  if (!first) afterwards.resize(afterwards.size() + 2 + chosen_.size() + 1, race.configurations.front());
  if (!has_time(afterwards, kProofLevel, options_.least_rounds, options_.seconds)) return {};

  tell(fmt::format("proof: {} {} instead of {}", name, candidate.value, candidate.setting->instead));
  chosen_.push_back(candidate);  // for now: the whole is looked at for all of its figures
  Proof choice, whole;
  for (int more = options_.least_rounds; race.rounds < options_.most_rounds; more = 2) {
    const Result<bool> ran = run_rounds(race, more);
    if (!ran.ok() || !*ran) {
      std::string reason = !ran.ok()                  ? ran.error().message()
                           : race.disturbance.empty() ? "there was no time left to prove it"
                                                      : race.disturbance;
      if (race.rounds >= options_.least_rounds) reason += "; until then " + choice.judged.reason;
      if (ran.ok() && race.rounds >= options_.least_rounds) KAZEIA_TRY(keep(choice));
      give_up(name, reason);
      return ran.ok() || ran.error().code() != ErrorCode::kCancelled ? Status() : ran.error();
    }
    choice = proof_of(race, 0, 1, &candidate);
    whole = proof_of(race, 0, first ? 1 : 2, nullptr);
    const auto is = [&](Judgement judgement) {
      return choice.judged.judgement == judgement || whole.judged.judgement == judgement;
    };
    if (is(Judgement::kLost) || !is(Judgement::kUndecided)) break;
  }
  KAZEIA_TRY(keep(choice));
  if (choice.judged.judgement != Judgement::kWon || whole.judged.judgement != Judgement::kWon) {
    const bool alone = choice.judged.judgement == Judgement::kWon;
    give_up(name, alone ? "with the other choices: " + whole.judged.reason : choice.judged.reason);
    tell(fmt::format("{} {}: {}", name, candidate.value, finding(name).reason));
    return {};
  }
  if (first) {
    whole.record = choice.record;
  } else {
    KAZEIA_TRY(keep(whole));
  }
  tell(fmt::format("{} {} is chosen: {}", name, candidate.value, choice.judged.reason));
  finding(name) = {name, candidate.value, true, ""};
  result_.chosen[name] = candidate.value;
  result_.proofs.push_back(std::move(choice));
  result_.whole = std::move(whole);
  return {};
}

// False if it could not be measured; result_.ended then says why.
Result<bool> Search::measure_once_more(Confirmation& once_more) {
  Race& race = once_more.race;
  race.configurations = {result_.chosen, Choices()};
  for (std::size_t i = 0; i < chosen_.size() && chosen_.size() > 1; ++i) {
    race.configurations.push_back(result_.chosen);
    race.configurations.back().erase(chosen_[i].setting->name);
  }
  tell("proof of the whole against the defaults");
  for (int more = options_.least_rounds; race.rounds < options_.most_rounds; more = 2) {
    KAZEIA_ASSIGN(const bool ran, run_rounds(race, more));
    if (!ran) {
      result_.ended = race.disturbance.empty() ? "there was no time left to measure the whole once more"
                                               : "the whole was not measured once more: " + race.disturbance;
      return false;
    }
    once_more.whole = proof_of(race, 0, 1, nullptr);
    once_more.choices.clear();
    bool open = once_more.whole.judged.judgement == Judgement::kUndecided;
    bool lost = once_more.whole.judged.judgement == Judgement::kLost;
    for (std::size_t i = 0; i + 2 < race.configurations.size(); ++i) {
      once_more.choices.push_back(proof_of(race, 0, i + 2, &chosen_[i]));
      const Judgement judgement = once_more.choices.back().judged.judgement;
      open = open || judgement == Judgement::kUndecided;
      lost = lost || judgement == Judgement::kLost;
    }
    if (lost || !open) break;
  }
  KAZEIA_TRY(keep(once_more.whole));
  for (Proof& choice : once_more.choices) KAZEIA_TRY(keep(choice));
  return true;
}

// Of the choices that do not hold; chosen_.size() if all hold.
std::size_t Search::worst_of(const std::vector<Proof>& choices) const {
  std::size_t worst = chosen_.size();
  double least = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].judged.judgement == Judgement::kWon) continue;
    double best = 0;
    for (const std::string& figure : chosen_[i].setting->figures) {
      if (const FigureGain* gain = choices[i].gain(figure)) best = std::max(best, gain->gain.median);
    }
    if (worst != chosen_.size() && best >= least) continue;
    worst = i;
    least = best;
  }
  return worst;
}

void Search::give_up_everything(const std::string& reason) {
  while (!chosen_.empty()) give_up(chosen_.back().setting->name, reason);
}

Status Search::confirm() {
  while (!chosen_.empty()) {
    Confirmation once_more;
    Result<bool> measured = measure_once_more(once_more);
    if (!measured.ok()) {
      if (measured.error().code() != ErrorCode::kEngine) return measured.error();
      give_up_everything("measured once more, it failed: " + measured.error().message());
      return {};
    }
    if (!*measured) return {};
    if (once_more.whole.judged.judgement != Judgement::kWon) {
      tell("the whole does not win: " + once_more.whole.judged.reason);
      give_up_everything("measured once more: " + once_more.whole.judged.reason);
      return {};
    }
    // The proofs of settings that are chosen alone are those of the whole.
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      Proof newest = once_more.choices.empty() ? once_more.whole : once_more.choices[i];
      if (newest.judged.judgement != Judgement::kWon) continue;
      newest.setting = result_.proofs[i].setting;
      newest.value = result_.proofs[i].value;
      newest.instead = result_.proofs[i].instead;
      result_.proofs[i] = std::move(newest);
    }
    result_.whole = once_more.whole;
    unproven_ = false;
    // Without the worst another one may hold.
    const std::size_t worst = worst_of(once_more.choices);
    if (worst == chosen_.size()) return {};
    const Proof& lost = once_more.choices[worst];
    tell(fmt::format("{} does not hold with the other choices: {}", lost.setting, lost.judged.reason));
    give_up(lost.setting, "with the other choices: " + lost.judged.reason);
    Proof rest = proof_of(once_more.race, worst + 2, 1, nullptr);
    unproven_ = rest.judged.judgement != Judgement::kWon;
    KAZEIA_TRY(keep(rest));
    result_.whole = std::move(rest);
  }
  return {};
}

Status Search::show(const SearchedSetting& setting) {
  for (const std::string& value : setting.values) {
    finding(setting.name) = {setting.name, value, false, "there was no time left to measure it"};
    const Candidate candidate{&setting, value, 0};
    Race race;
    race.configurations = {result_.chosen, result_.chosen};
    race.configurations.front()[setting.name] = value;
    tell(fmt::format("to show: {} {} instead of {}", setting.name, value, setting.instead));
    const Result<bool> ran = run_rounds(race, options_.least_rounds);
    if (!ran.ok() && ran.error().code() == ErrorCode::kCancelled) return ran.error();
    if (!ran.ok() || !*ran) {
      if (!ran.ok()) finding(setting.name).reason = ran.error().message();
      if (!race.disturbance.empty()) finding(setting.name).reason = race.disturbance;
      continue;
    }
    Proof proof = proof_of(race, 0, 1, &candidate);
    KAZEIA_TRY(keep(proof));
    finding(setting.name).reason = "it changes answers; " + proof.judged.reason;
    result_.shown.push_back(std::move(proof));
  }
  return {};
}

Status Search::everything() {
  KAZEIA_ASSIGN(const Round defaults, measure({Choices()}, Work{}));
  KAZEIA_TRY(screen());
  for (const Candidate& candidate : finalists()) KAZEIA_TRY(prove(candidate));
  KAZEIA_TRY(confirm());
  for (const SearchedSetting& setting : settings_) {
    if (setting.only_shown) KAZEIA_TRY(show(setting));
  }
  return {};
}

Result<SearchResult> Search::run() {
  for (const SearchedSetting& setting : settings_) {
    result_.findings.push_back({setting.name, "", false, "there was no time to look at it"});
    if (setting.only_shown) continue;
    for (const std::string& value : setting.values) pool_.push_back({&setting, value, 0});
  }
  const Status status = everything();
  if (!status.ok() && status.error().code() != ErrorCode::kCancelled) return status.error();
  if (!status.ok()) result_.ended = status.error().message();
  if (unproven_) give_up_everything("it was not proven without a choice that did not hold");
  if (result_.chosen.empty()) result_.whole = {};
  return std::move(result_);
}

}  // namespace

const FigureGain* Proof::gain(const std::string& figure) const {
  for (const FigureGain& one : gains) {
    if (one.figure == figure) return &one;
  }
  return nullptr;
}

Result<SearchResult> search(const std::vector<SearchedSetting>& settings, const SearchOptions& options,
                            const SearchSeams& seams) {
  return Search(settings, options, seams).run();
}

}  // namespace kazeia::bench
