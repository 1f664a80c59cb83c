#include "session/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"

namespace kazeia {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // written between two looks at a cancel flag
// Read ahead in pieces that an interruption does not waste much of; the NPU is worth its switch for wider ones only.
constexpr std::size_t kReadAheadTokens = 64;
constexpr std::size_t kReadAheadTokensOnNpu = 128;
// A text that is left is kept if it is longer than this: shorter ones are read again sooner than copied.
constexpr std::size_t kLeastParked = 64;

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t limit = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(limit);
  return static_cast<std::size_t>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

ByteSink into(std::vector<std::byte>& bytes) {
  return [&bytes](std::span<const std::byte> piece) -> Status {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return {};
  };
}

ByteSink into(StateFileWriter& writer, std::size_t& written, const CancelFlag& cancel) {
  return [&](std::span<const std::byte> piece) -> Status {
    for (std::size_t at = 0; at < piece.size(); at += kPieceBytes) {
      if (cancel.requested()) return Error(ErrorCode::kCancelled, "interrupted");
      const auto part = piece.subspan(at, std::min(kPieceBytes, piece.size() - at));
      KAZEIA_TRY(writer.write(part));
      written += part.size();
    }
    return {};
  };
}

PartHeader recurrent_header(const Timeline& timeline, bool half) {
  PartHeader header;
  header.kind = PartKind::kRecurrent;
  header.from = header.to = timeline.token_count();
  header.before = header.after = hash_of_prefix(timeline.tokens());
  header.half = half;
  header.context_tokens = static_cast<std::uint32_t>(timeline.capacity_tokens());
  return header;
}

PartHeader attention_header(const Timeline& timeline, std::size_t from, std::size_t to) {
  PartHeader header;
  const std::span<const Token> tokens = timeline.tokens();
  header.kind = PartKind::kAttention;
  header.from = from;
  header.to = to;
  header.before = hash_of_prefix(tokens.first(from));
  header.after = hash_of_prefix(tokens.first(to));
  header.context_tokens = static_cast<std::uint32_t>(timeline.capacity_tokens());
  return header;
}

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheOptions& options) : options_(options), store_(options.memory_budget_bytes) {}

Status PrefixCache::attach(const std::string& folder, const StateOrigin& origin) {
  return store_.attach(folder, origin, options_.folder_budget_bytes, remarks_);
}

Status PrefixCache::read(Timeline& timeline, const PromptToRead& prompt, std::size_t& reused) {
  store_.tick();
  park(timeline, prompt.tokens);
  reused = bring(timeline, prompt.tokens, prompt.tokens.size() - 1);
  boundary_ = prompt.tokens.size();
  ++counts_.prompts;
  counts_.prompt_tokens += prompt.tokens.size();
  counts_.reused_tokens += reused;

  const std::size_t total = prompt.tokens.size() - reused;
  const std::size_t begin = reused;
  std::size_t at = reused;
  const auto read_to = [&](std::size_t end) -> Status {
    Timeline::Progress progress;
    if (prompt.progress) {
      progress = [&](std::size_t done, std::size_t) { prompt.progress(at - begin + done, total); };
    }
    const std::size_t before = timeline.token_count();
    const bool last = end == prompt.tokens.size();
    const Status read = timeline.prefill(prompt.tokens.subspan(at, end - at), progress, prompt.cancel, last);
    counts_.read_tokens += timeline.poisoned() ? 0 : timeline.token_count() - before;
    at = end;
    return read;
  };
  if (timeline.model().has_recurrent_state()) {
    for (const std::size_t stop : stops(prompt, reused)) {
      KAZEIA_TRY(read_to(stop));
      checkpoint(timeline);
    }
  }
  return read_to(prompt.tokens.size());
}

// Positions behind `reused` where a recurrent state is worth keeping: a later prompt will part from this one there.
std::vector<std::size_t> PrefixCache::stops(const PromptToRead& prompt, std::size_t reused) const {
  if (store_.counts().memory_budget_bytes == 0) return {};
  std::vector<std::size_t> wanted;
  const auto& starts = prompt.message_starts;
  // Where the system prompt, or the first message, ends.
  const auto second = std::find_if(starts.begin(), starts.end(), [](std::size_t start) { return start > 0; });
  if (second != starts.end()) wanted.push_back(*second);
  if (starts.size() > 2) wanted.push_back(starts[starts.size() - 2]);
  wanted.push_back(starts.empty() ? prompt.tokens.size() - 1 : starts.back());
  if (options_.spacing_tokens > 0) {
    std::size_t last = reused;
    for (const std::size_t start : starts) {
      if (start < last + options_.spacing_tokens) continue;
      wanted.push_back(start);
      last = start;
    }
    // Inside one long message.
    for (last = reused; last + 2 * options_.spacing_tokens < prompt.tokens.size();) {
      last += options_.spacing_tokens;
      const bool near_another = std::any_of(wanted.begin(), wanted.end(), [&](std::size_t stop) {
        return stop + options_.spacing_tokens / 2 > last && stop < last + options_.spacing_tokens / 2;
      });
      if (!near_another) wanted.push_back(last);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::erase_if(wanted, [&](std::size_t stop) { return stop <= reused || stop >= prompt.tokens.size(); });
  return wanted;
}

// Returns the length of the longest prefix of `text`, at most `limit`, that the timeline could be brought to.
std::size_t PrefixCache::bring(Timeline& timeline, std::span<const Token> text, std::size_t limit) {
  if (timeline.poisoned()) timeline.reset();
  const bool recurrent = timeline.model().has_recurrent_state();
  for (;;) {
    const std::size_t present = common_prefix(timeline.tokens(), text);
    const bool all_present = present == timeline.token_count() && present <= limit;
    const std::size_t own = all_present ? present : recurrent ? 0 : std::min(present, limit);
    const StateMatch match = store_.best(text, present, limit, recurrent);
    if (match.token_count > own) {
      if (put_back(timeline, text, present, match)) {
        last_checkpoint_ = match.token_count;
        return match.token_count;
      }
      continue;  // what could not be put back is forgotten
    }
    if (own == 0 || (own < timeline.token_count() && !timeline.truncate(own).ok())) {
      timeline.reset();
      last_checkpoint_ = 0;
      return 0;
    }
    return own;
  }
}

// False: the parts were no good and are forgotten; the timeline is what it was, or empty.
bool PrefixCache::put_back(Timeline& timeline, std::span<const Token> text, std::size_t present,
                           const StateMatch& match) {
  const Stopwatch watch;
  std::vector<KeptPartPtr> parts = match.attention;
  if (match.recurrent != nullptr) parts.push_back(match.recurrent);
  for (const KeptPartPtr& part : parts) {
    if (part->file == nullptr) continue;
    if (const Status whole = part->file->check(); !whole.ok()) {
      remarks_.push_back(whole.error().message() + "; what it held is read again");
      store_.forget(part);
      return false;
    }
  }
  std::vector<AttentionRows> rows;
  for (const KeptPartPtr& part : match.attention) rows.push_back({part->header.from, part->header.to, part->payload()});
  const StateLayout& layout = *store_.layout();
  std::vector<std::byte> widened;
  std::span<const std::byte> state;
  if (match.recurrent != nullptr) {
    state = match.recurrent->payload();
    if (match.recurrent->header.half) {
      widened = widen_recurrent(layout, state);
      state = widened;
    }
  }
  const std::size_t kept = std::min(present, match.token_count);
  const Status restored = timeline.restore(text.first(match.token_count), kept, rows, state, layout);
  for (const KeptPartPtr& part : parts) {
    if (part->file != nullptr) drop_pages(part->file->payload());
  }
  if (!restored.ok()) {
    remarks_.push_back(restored.error().message());
    for (const KeptPartPtr& part : parts) store_.forget(part);
    return false;
  }
  if (match.recurrent != nullptr) ++counts_.checkpoint_hits;
  for (const KeptPartPtr& part : match.attention) {
    const std::size_t put = std::min(part->header.to, match.token_count) - std::max(part->header.from, kept);
    counts_.rows_put_back += put;
    if (part->file != nullptr) counts_.rows_from_disk += put;
  }
  counts_.restore_ms += watch.elapsed_ms();
  return true;
}

// What the next text does not share, as far as it belongs to a prompt, goes into the store: an answer's own tokens
// never come again as they were.
void PrefixCache::park(const Timeline& timeline, std::span<const Token> next) {
  if (timeline.poisoned()) return;
  const std::size_t present = common_prefix(timeline.tokens(), next);
  const std::size_t end = std::min(boundary_, timeline.token_count());
  if (end < present + kLeastParked) return;
  const Result<StateLayout> layout = timeline.state_layout();
  if (!layout.ok() || !store_.set_layout(*layout)) return;
  const std::uint64_t bytes = (end - present) * layout->attention_bytes_per_token();
  if (bytes > options_.memory_budget_bytes / 2) return;
  if (store_.saved_rows(timeline.tokens()) >= end) return;
  const PartHeader header = attention_header(timeline, present, end);
  if (!store_.make_room(header, bytes, end - present)) return;
  std::vector<std::byte> rows;
  rows.reserve(bytes);
  if (!timeline.copy_attention(present, end, into(rows)).ok()) return;
  const auto begin = timeline.tokens().begin();
  store_.keep(header, {begin + static_cast<std::ptrdiff_t>(present), begin + static_cast<std::ptrdiff_t>(end)},
              std::move(rows), end - present);
}

void PrefixCache::checkpoint(const Timeline& timeline) {
  if (!timeline.model().has_recurrent_state() || timeline.token_count() == 0) return;
  const Result<StateLayout> layout = timeline.state_layout();
  if (!layout.ok()) return;
  store_.set_layout(*layout);
  const std::size_t here = timeline.token_count();
  const std::size_t cost = here > last_checkpoint_ ? here - last_checkpoint_ : here;
  last_checkpoint_ = here;
  PartHeader header = recurrent_header(timeline, options_.half_checkpoints);
  const std::uint64_t bytes = layout->recurrent_bytes();
  if (!store_.make_room(header, options_.half_checkpoints ? bytes / 2 : bytes, cost)) return;
  std::vector<std::byte> state;
  state.reserve(bytes);
  if (!timeline.copy_recurrent(into(state)).ok()) return;
  if (options_.half_checkpoints) {
    std::vector<std::byte> halved = halve_recurrent(*layout, state);
    header.half = !halved.empty();
    if (header.half) state = std::move(halved);
  }
  store_.keep(header, {}, std::move(state), cost);
  ++counts_.checkpoints_taken;
}

Status PrefixCache::prepare(Timeline& timeline, std::span<const Token> text, const CancelFlag& cancel,
                            const Timeline::Progress& progress) {
  if (text.empty() || text.size() >= timeline.capacity_tokens()) return {};
  if (!timeline.poisoned() && std::ranges::equal(timeline.tokens(), text)) return {};
  park(timeline, text);
  std::size_t at = bring(timeline, text, text.size());
  boundary_ = text.size();
  const bool stands_at_checkpoint = at == text.size();
  const bool on_npu = timeline.model().placement() == Placement::kNpu;
  const std::size_t piece = on_npu ? kReadAheadTokensOnNpu : kReadAheadTokens;
  while (at < text.size()) {
    const std::size_t width = std::min(piece, text.size() - at);
    KAZEIA_TRY(timeline.prefill(text.subspan(at, width), {}, &cancel, /*want_logits=*/false));
    counts_.read_ahead_tokens += width;
    at += width;
    if (progress) progress(at, text.size());
  }
  if (!stands_at_checkpoint) checkpoint(timeline);
  return {};
}

Status PrefixCache::save(Timeline& timeline, const CancelFlag& cancel) {
  if (!store_.has_folder() || timeline.poisoned() || timeline.token_count() == 0) return {};
  const Result<StateLayout> layout = timeline.state_layout();
  if (!layout.ok()) return {};  // this kind of state is not kept
  store_.set_layout(*layout);
  const std::size_t count = timeline.token_count();
  // More than the folder may hold would be written and removed again at every turn.
  if (count * layout->attention_bytes_per_token() + layout->recurrent_bytes() > store_.folder_budget_bytes()) return {};
  const std::size_t saved = store_.saved_rows(timeline.tokens());
  const auto write = [&](const PartHeader& header, std::span<const Token> tokens,
                         const std::function<Status(const ByteSink&)>& copy) -> Status {
    if (store_.has_file_of(header)) return {};
    KAZEIA_ASSIGN(StateFileWriter writer, store_.begin_file(header, tokens));
    KAZEIA_TRY(copy(into(writer, counts_.saved_bytes, cancel)));
    store_.finish_file(std::move(writer), header);
    return {};
  };
  if (saved < count && !layout->attention.empty()) {
    const std::span<const Token> rest = std::span<const Token>(timeline.tokens()).subspan(saved);
    KAZEIA_TRY(write(attention_header(timeline, saved, count), rest,
                     [&](const ByteSink& sink) { return timeline.copy_attention(saved, count, sink); }));
  }
  if (timeline.model().has_recurrent_state()) {
    KAZEIA_TRY(write(recurrent_header(timeline, false), {},
                     [&](const ByteSink& sink) { return timeline.copy_recurrent(sink); }));
  }
  return store_.write_cold(cancel);
}

PrefixCacheCounts PrefixCache::counts() const {
  PrefixCacheCounts counts = counts_;
  counts.store = store_.counts();
  return counts;
}

std::vector<std::string> PrefixCache::take_remarks() {
  return std::exchange(remarks_, {});
}

}  // namespace kazeia
