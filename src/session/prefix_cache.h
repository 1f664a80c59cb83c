// Reads a prompt into a timeline at the price of what is new in it.
//
// Invariant: whatever is reused was computed from exactly the tokens in front of it. Attention rows that the prompt
// shares with the timeline stay where they are; rows that are not there any more, and the recurrent state, which cannot
// be cut back, come from parts that were kept on the way (session/state_store.h). A recurrent model keeps a checkpoint
// where a later prompt is likely to part from this one: at the end of the system prompt, before the answer, and inside
// long stretches; a text that is left for another one keeps its attention rows.
//
// Threads: one at a time, together with the timeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "base/units.h"
#include "chat/prefix.h"
#include "engine/timeline.h"
#include "session/state_store.h"

namespace kazeia {

struct PrefixCacheOptions {
  std::uint64_t memory_budget_bytes = 256 * kMiB;
  std::uint64_t folder_budget_bytes = 2048 * kMiB;
  std::size_t spacing_tokens = 1024;  // between checkpoints inside a prompt; 0 = none but at messages
  bool half_checkpoints = false;      // f16: half the bytes, and answers may differ from those of an exact state
};

struct PrefixCacheCounts {
  std::size_t prompts = 0;
  std::size_t prompt_tokens = 0;
  std::size_t reused_tokens = 0;
  std::size_t read_tokens = 0;        // while somebody waited
  std::size_t read_ahead_tokens = 0;  // while nobody did
  std::size_t checkpoint_hits = 0;    // recurrent states put back
  std::size_t rows_put_back = 0;      // tokens whose attention rows came from a part
  std::size_t rows_from_disk = 0;     // of these, from a file
  std::size_t saved_bytes = 0;        // written to state files
  std::size_t checkpoints_taken = 0;
  double restore_ms = 0;
  StateStoreCounts store;
};

class PrefixCache {
 public:
  explicit PrefixCache(const PrefixCacheOptions& options = {});

  // From now on parts are also kept in `folder`. kFile, kWrite.
  Status attach(const std::string& folder, const StateOrigin& origin);

  // A PromptReader (chat/prefix.h).
  Status read(Timeline& timeline, const PromptToRead& prompt, std::size_t& reused);
  // Brings the timeline to all of `text`, which later prompts will begin with, and keeps a checkpoint there.
  // kCancelled, while it reads, within a part of a piece: the timeline then holds a part of the text. Putting a state
  // back and taking a checkpoint are not interrupted (some 10 ms each for a recurrent state of 50 MB). Nothing to do
  // for an empty text.
  Status prepare(Timeline& timeline, std::span<const Token> text, const CancelFlag& cancel,
                 const Timeline::Progress& progress = {});
  // Writes to the folder what is not there yet: the attention rows and the recurrent state of the timeline, then parts
  // that would be dropped next. kCancelled within a megabyte; kWrite. Nothing to do without a folder.
  Status save(Timeline& timeline, const CancelFlag& cancel);
  // Waits until all that was saved is on the disk. kWrite; kCancelled, and then some of it may not be.
  Status flush(const CancelFlag* cancel = nullptr) { return store_.flush(cancel); }
  // Gives the folder's space back.
  void remove_files() { store_.remove_files(); }

  PrefixCacheCounts counts() const;
  // What went wrong with kept states since the last call, one sentence each.
  std::vector<std::string> take_remarks();

 private:
  std::size_t bring(Timeline& timeline, std::span<const Token> text, std::size_t limit);
  bool put_back(Timeline& timeline, std::span<const Token> text, std::size_t present, const StateMatch& match);
  void park(const Timeline& timeline, std::span<const Token> next);
  void checkpoint(const Timeline& timeline);
  std::vector<std::size_t> stops(const PromptToRead& prompt, std::size_t reused) const;

  PrefixCacheOptions options_;
  StateStore store_;
  PrefixCacheCounts counts_;
  std::vector<std::string> remarks_;
  std::size_t boundary_ = 0;         // tokens of the timeline that belong to a prompt, not to an answer
  std::size_t last_checkpoint_ = 0;  // tokens, in the current timeline
};

}  // namespace kazeia
