#include "session/state_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/units.h"

namespace kazeia {
namespace {

constexpr std::string_view kSuffix = ".state";
constexpr std::uint64_t kReserveBytes = 256 * kMiB;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // written between two looks at a cancel flag

// Our own, finished or not.
bool is_state_file(std::string_view name) {
  const bool ours = name.starts_with("attention-") || name.starts_with("recurrent-");
  return ours && (name.ends_with(kSuffix) || name.find(".state.partial-") != std::string_view::npos);
}

// Same tokens from the same positions: the same part.
bool same_part(const PartHeader& a, const PartHeader& b) {
  return a.kind == b.kind && a.from == b.from && a.to == b.to && a.after == b.after;
}

std::size_t matching(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t limit = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(limit);
  return static_cast<std::size_t>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

// Hashes of prefixes of one text, at the positions where parts begin or end.
class PrefixHashes {
 public:
  PrefixHashes(std::span<const Token> text, const std::vector<KeptPartPtr>& parts) {
    for (const KeptPartPtr& part : parts) {
      for (const std::size_t position : {part->header.from, part->header.to}) {
        if (position <= text.size()) positions_.push_back(position);
      }
    }
    std::sort(positions_.begin(), positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
    hashes_ = hashes_of_prefixes(text, positions_);
  }

  bool has(std::size_t position, const PrefixHash& hash) const {
    const auto found = std::lower_bound(positions_.begin(), positions_.end(), position);
    return found != positions_.end() && *found == position &&
           hashes_[static_cast<std::size_t>(found - positions_.begin())] == hash;
  }

 private:
  std::vector<std::size_t> positions_;
  std::vector<PrefixHash> hashes_;
};

// Extends `covered` tokens of `text` by attention parts, each time by the one that reaches furthest.
std::vector<KeptPartPtr> chain(std::span<const Token> text, const std::vector<KeptPartPtr>& parts,
                               const PrefixHashes& hashes, std::size_t limit, std::size_t& covered) {
  std::vector<KeptPartPtr> links;
  while (covered < limit) {
    KeptPartPtr furthest;
    std::size_t reach = covered;
    for (const KeptPartPtr& part : parts) {
      const PartHeader& header = part->header;
      if (header.kind != PartKind::kAttention || header.from > covered || header.to <= reach) continue;
      if (!hashes.has(header.from, header.before)) continue;
      const std::size_t end = header.from + matching(part->tokens, text.subspan(header.from));
      if (end <= reach) continue;
      reach = end;
      furthest = part;
    }
    if (furthest == nullptr) break;
    links.push_back(std::move(furthest));
    covered = reach;
  }
  return links;
}

}  // namespace

std::string StateStore::path_of(const PartHeader& header) const {
  const bool attention = header.kind == PartKind::kAttention;
  return fmt::format("{}/{}-{}-{}-{:016x}{}", folder_, attention ? "attention" : "recurrent", header.from, header.to,
                     header.after[0], kSuffix);
}

Status StateStore::attach(const std::string& folder, const StateOrigin& origin, std::uint64_t folder_budget_bytes,
                          std::vector<std::string>& remarks) {
  // A link could lead to a folder whose files are not ours to remove.
  std::error_code problem;
  const bool made = ::mkdir(folder.c_str(), 0700) == 0;
  if (!made && std::filesystem::symlink_status(folder, problem).type() != std::filesystem::file_type::directory) {
    return Error(ErrorCode::kWrite, fmt::format("cannot create the folder '{}': {}", folder, std::strerror(errno)),
                 "Choose another --sessions-dir");
  }
  folder_ = folder;
  origin_ = origin;
  folder_budget_bytes_ = folder_budget_bytes;
  // Oldest first: what was written last is the most recently used.
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> names;
  for (auto entry = std::filesystem::directory_iterator(folder, problem);
       !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (!is_state_file(name) || !entry->is_regular_file(problem)) continue;
    names.emplace_back(entry->last_write_time(problem), entry->path().string());
  }
  std::sort(names.begin(), names.end());
  std::size_t foreign = 0;
  for (const auto& [written, path] : names) {
    tick();
    if (!path.ends_with(kSuffix)) {
      ::unlink(path.c_str());
      continue;
    }
    Result<StateFile> file = StateFile::open(path);
    if (!file.ok()) {
      remarks.push_back(file.error().message() + "; what it held is read again");
      ::unlink(path.c_str());
      continue;
    }
    StateOrigin expected = origin_;
    expected.layout = layout_ ? *layout_ : file->origin().layout;
    if (file->origin() != expected) {
      ++foreign;
      ::unlink(path.c_str());
      continue;
    }
    layout_ = expected.layout;
    add_file(path);
  }
  if (foreign > 0) {
    remarks.push_back("the kept state is of another model or version; the conversation is read again");
  }
  return {};
}

bool StateStore::set_layout(const StateLayout& layout) {
  if (layout_ && *layout_ == layout) return true;
  const std::lock_guard lock(mutex_);
  const bool other = layout_.has_value();
  if (other) {
    for (const KeptPartPtr& part : parts_) {
      if (part->file != nullptr) ::unlink(part->file->path().c_str());
    }
    parts_.clear();
    begun_files_.clear();
    memory_bytes_ = 0;
  }
  layout_ = layout;
  return !other;
}

void StateStore::tick() {
  const std::lock_guard lock(mutex_);
  ++clock_;
}

// Tokens saved per byte held, less for what has not been used for long.
double StateStore::worth(std::size_t cost_tokens, std::uint64_t last_use, std::uint64_t bytes) const {
  return static_cast<double>(cost_tokens) / static_cast<double>(1 + clock_ - last_use) / static_cast<double>(bytes);
}

bool StateStore::room_for(std::uint64_t bytes, double worth_of_it) {
  if (bytes == 0 || bytes > memory_budget_bytes_) return false;
  std::vector<std::pair<double, KeptPartPtr>> in_memory;
  for (const KeptPartPtr& part : parts_) {
    if (part->file == nullptr) {
      in_memory.emplace_back(worth(part->cost_tokens, part->last_use, part->memory.size()), part);
    }
  }
  std::sort(in_memory.begin(), in_memory.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::uint64_t left = memory_bytes_;
  std::size_t victims = 0;
  while (left + bytes > memory_budget_bytes_) {
    if (victims == in_memory.size() || in_memory[victims].first > worth_of_it) return false;
    left -= in_memory[victims++].second->memory.size();
  }
  for (std::size_t i = 0; i < victims; ++i) std::erase(parts_, in_memory[i].second);
  memory_bytes_ = left;
  dropped_ += victims;
  return true;
}

bool StateStore::make_room(const PartHeader& header, std::uint64_t bytes, std::size_t cost_tokens) {
  const std::lock_guard lock(mutex_);
  for (const KeptPartPtr& part : parts_) {
    if (part->file == nullptr && same_part(part->header, header)) {
      part->last_use = clock_;
      return false;
    }
  }
  return room_for(bytes, worth(cost_tokens, clock_, std::max<std::uint64_t>(1, bytes)));
}

void StateStore::keep(PartHeader header, Tokens tokens, std::vector<std::byte> payload, std::size_t cost_tokens) {
  if (!make_room(header, payload.size(), cost_tokens)) return;
  const std::lock_guard lock(mutex_);
  auto part = std::make_shared<KeptPart>();
  part->header = header;
  part->tokens = std::move(tokens);
  part->memory = std::move(payload);
  part->cost_tokens = cost_tokens;
  part->last_use = clock_;
  memory_bytes_ += part->memory.size();
  most_memory_bytes_ = std::max(most_memory_bytes_, memory_bytes_);
  parts_.push_back(std::move(part));
}

StateMatch StateStore::best(std::span<const Token> prompt, std::size_t present, std::size_t limit,
                            bool needs_recurrent) {
  const std::lock_guard lock(mutex_);
  const PrefixHashes hashes(prompt, parts_);
  std::size_t covered = present;
  StateMatch match;
  // Without attention layers there are no rows that could be missing.
  if (layout_ && layout_->attention.empty()) covered = limit;
  match.attention = chain(prompt, parts_, hashes, limit, covered);
  match.token_count = std::min(covered, limit);
  if (needs_recurrent) {
    for (const KeptPartPtr& part : parts_) {
      const PartHeader& header = part->header;
      if (header.kind != PartKind::kRecurrent || header.to > match.token_count) continue;
      if (!hashes.has(header.to, header.after)) continue;
      // Of two at the same place the one in memory.
      const bool further = match.recurrent == nullptr || header.to > match.recurrent->header.to;
      const bool nearer = match.recurrent != nullptr && header.to == match.recurrent->header.to &&
                          part->file == nullptr && match.recurrent->file != nullptr;
      if (further || nearer) match.recurrent = part;
    }
    match.token_count = match.recurrent == nullptr ? 0 : match.recurrent->header.to;
    if (match.recurrent != nullptr) match.recurrent->last_use = clock_;
  }
  std::erase_if(match.attention, [&](const KeptPartPtr& part) { return part->header.from >= match.token_count; });
  if (match.token_count <= present) match.attention.clear();
  for (const KeptPartPtr& part : match.attention) part->last_use = clock_;
  return match;
}

std::size_t StateStore::saved_rows(std::span<const Token> tokens) {
  const std::lock_guard lock(mutex_);
  std::vector<KeptPartPtr> files;
  for (const KeptPartPtr& part : parts_) {
    if (part->file != nullptr) files.push_back(part);
  }
  std::size_t covered = 0;
  for (const KeptPartPtr& link : chain(tokens, files, PrefixHashes(tokens, files), tokens.size(), covered)) {
    link->last_use = clock_;
  }
  return covered;
}

bool StateStore::has_file_of(const PartHeader& header) const {
  const std::lock_guard lock(mutex_);
  return begun_files_.contains(path_of(header));
}

void StateStore::forget(const KeptPartPtr& part) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(parts_.begin(), parts_.end(), part);
  if (found == parts_.end()) return;
  if (part->file != nullptr) {
    ::unlink(part->file->path().c_str());
    begun_files_.erase(part->file->path());
  } else {
    memory_bytes_ -= part->memory.size();
  }
  parts_.erase(found);
}

Result<StateFileWriter> StateStore::begin_file(const PartHeader& header, std::span<const Token> tokens) {
  StateOrigin origin = origin_;
  // What only saves time shall not take the last space from what matters.
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(folder_, unknown);
  if (!unknown && layout_ && space.available < payload_bytes(header, *layout_) + kReserveBytes) {
    return Error(ErrorCode::kWrite, fmt::format("the disk of '{}' is nearly full", folder_), "Free some space");
  }
  if (!layout_) return Error(ErrorCode::kUsage, "the layout of the state is not known yet");
  origin.layout = *layout_;
  return StateFileWriter::create(path_of(header), origin, header, tokens);
}

void StateStore::finish_file(StateFileWriter writer, const PartHeader& header) {
  // std::function wants something that can be copied.
  auto shared = std::make_shared<StateFileWriter>(std::move(writer));
  {
    const std::lock_guard lock(mutex_);
    begun_files_.insert(path_of(header));
  }
  committer_.add([this, shared, path = path_of(header)]() -> Status {
    KAZEIA_TRY(shared->commit());
    add_file(path);
    enforce_folder_budget();
    return {};
  });
}

// A file that cannot be opened again is not missed: it would only have saved time.
void StateStore::add_file(const std::string& path) {
  Result<StateFile> file = StateFile::open(path);
  if (!file.ok()) return;
  auto part = std::make_shared<KeptPart>();
  part->header = file->header();
  part->tokens = file->tokens();
  part->cost_tokens = part->header.kind == PartKind::kAttention ? part->tokens.size() : part->header.to;
  part->file = std::make_unique<StateFile>(std::move(file).value());
  const std::lock_guard lock(mutex_);
  part->last_use = clock_;
  std::erase_if(parts_,
                [&](const KeptPartPtr& other) { return other->file != nullptr && other->file->path() == path; });
  parts_.push_back(std::move(part));
  begun_files_.insert(path);
}

// Of the recurrent states on disk the newest few are enough: each is worth the messages behind the one before it. Of
// rows that were used at the same time the last ones of a text go first: the others are of no use without those in
// front of them.
void StateStore::enforce_folder_budget() {
  constexpr std::size_t kMostRecurrent = 6;
  std::vector<KeptPartPtr> victims;  // unmapped without the lock: somebody may be waiting for it
  {
    const std::lock_guard lock(mutex_);
    std::vector<KeptPartPtr> files;
    std::uint64_t bytes = 0;
    for (const KeptPartPtr& part : parts_) {
      if (part->file == nullptr) continue;
      files.push_back(part);
      bytes += part->payload().size();
    }
    std::sort(files.begin(), files.end(), [](const KeptPartPtr& a, const KeptPartPtr& b) {
      return a->last_use != b->last_use ? a->last_use < b->last_use : a->header.to > b->header.to;
    });
    auto recurrent = static_cast<std::size_t>(std::count_if(
        files.begin(), files.end(), [](const KeptPartPtr& part) { return part->header.kind == PartKind::kRecurrent; }));
    for (const KeptPartPtr& part : files) {
      const bool one_of_many = part->header.kind == PartKind::kRecurrent && recurrent > kMostRecurrent;
      if (!one_of_many && bytes <= folder_budget_bytes_) continue;
      bytes -= part->payload().size();
      if (part->header.kind == PartKind::kRecurrent) --recurrent;
      begun_files_.erase(part->file->path());
      std::erase(parts_, part);
      victims.push_back(part);
    }
  }
  for (const KeptPartPtr& part : victims) ::unlink(part->file->path().c_str());
}

void StateStore::remove_files() {
  std::vector<KeptPartPtr> victims;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(parts_.begin(), parts_.end(), std::back_inserter(victims),
                 [](const KeptPartPtr& part) { return part->file != nullptr; });
    std::erase_if(parts_, [](const KeptPartPtr& part) { return part->file != nullptr; });
    begun_files_.clear();
  }
  for (const KeptPartPtr& part : victims) ::unlink(part->file->path().c_str());
}

Status StateStore::write_cold(const CancelFlag& cancel) {
  if (folder_.empty()) return {};
  for (;;) {
    KeptPartPtr coldest;
    {
      const std::lock_guard lock(mutex_);
      std::uint64_t safe = 0;
      for (const KeptPartPtr& part : parts_) {
        if (part->file != nullptr) continue;
        if (begun_files_.contains(path_of(part->header))) {
          safe += part->memory.size();
        } else if (coldest == nullptr || part->last_use < coldest->last_use) {
          coldest = part;
        }
      }
      if (memory_bytes_ - safe <= memory_budget_bytes_ / 2) return {};
    }
    if (coldest == nullptr) return {};
    KAZEIA_ASSIGN(StateFileWriter writer, begin_file(coldest->header, coldest->tokens));
    for (std::size_t at = 0; at < coldest->memory.size(); at += kPieceBytes) {
      if (cancel.requested()) return Error(ErrorCode::kCancelled, "interrupted");
      const auto rest = std::span<const std::byte>(coldest->memory).subspan(at);
      KAZEIA_TRY(writer.write(rest.first(std::min(kPieceBytes, rest.size()))));
    }
    finish_file(std::move(writer), coldest->header);
  }
}

Status StateStore::flush(const CancelFlag* cancel) {
  return committer_.flush(cancel);
}

StateStoreCounts StateStore::counts() const {
  const std::lock_guard lock(mutex_);
  StateStoreCounts counts;
  for (const KeptPartPtr& part : parts_) {
    if (part->file != nullptr) {
      ++counts.parts_on_disk;
      counts.bytes_on_disk += part->payload().size();
    } else {
      ++counts.parts_in_memory;
    }
  }
  counts.bytes_in_memory = memory_bytes_;
  counts.most_bytes_in_memory = most_memory_bytes_;
  counts.memory_budget_bytes = memory_budget_bytes_;
  counts.dropped = dropped_;
  return counts;
}

}  // namespace kazeia
