// Parts of inference states that may be wanted again: in memory under a budget, and in a folder if there is one.
//
// A part is found by the tokens that led to it. What is dropped from memory is what would cost least to compute again,
// weighed by how likely it is wanted (recently used parts are) and per byte.
//
// Threads: one at a time, and the thread that finishes files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/state_parts.h"
#include "engine/token.h"
#include "session/committer.h"
#include "session/state_file.h"

namespace kazeia {

struct KeptPart {
  PartHeader header;
  Tokens tokens;                    // attention: those of [from, to)
  std::vector<std::byte> memory;    // the payload, or
  std::unique_ptr<StateFile> file;  // where it is
  std::size_t cost_tokens = 0;      // to be read again if it were not there
  std::uint64_t last_use = 0;       // in reads of prompts

  std::span<const std::byte> payload() const { return file != nullptr ? file->payload() : memory; }
};
using KeptPartPtr = std::shared_ptr<KeptPart>;

// The longest state that can be put together for some tokens.
struct StateMatch {
  std::size_t token_count = 0;
  KeptPartPtr recurrent;               // null for a model without
  std::vector<KeptPartPtr> attention;  // cover what is not in the timeline, ascending
};

struct StateStoreCounts {
  std::size_t parts_in_memory = 0;
  std::uint64_t bytes_in_memory = 0;
  std::uint64_t most_bytes_in_memory = 0;
  std::uint64_t memory_budget_bytes = 0;
  std::size_t parts_on_disk = 0;
  std::uint64_t bytes_on_disk = 0;
  std::uint64_t dropped = 0;  // from memory, for room
};

class StateStore {
 public:
  explicit StateStore(std::uint64_t memory_budget_bytes) : memory_budget_bytes_(memory_budget_bytes) {}

  // Files of `origin` in `folder` (created, 0700) belong to the store from now on; unfinished files of a process that
  // died are removed, those of another origin or damaged ones too, with a sentence in `remarks`. `origin.layout` is
  // taken from the files. kWrite.
  Status attach(const std::string& folder, const StateOrigin& origin, std::uint64_t folder_budget_bytes,
                std::vector<std::string>& remarks);
  bool has_folder() const { return !folder_.empty(); }

  // The layout that all parts have; set by the first one who knows it. False if it is another than the parts have,
  // which are then forgotten.
  bool set_layout(const StateLayout& layout);
  const std::optional<StateLayout>& layout() const { return layout_; }

  // A read of a prompt begins: what was used before is older now.
  void tick();
  // Whether a part is worth being copied: it is not there yet (then it is renewed), and there is room for its bytes, if
  // need be after dropping parts that are worth less. To be followed by keep().
  bool make_room(const PartHeader& header, std::uint64_t bytes, std::size_t cost_tokens);
  // Keeps a part in memory, if there is room for it as make_room() has it.
  void keep(PartHeader header, Tokens tokens, std::vector<std::byte> payload, std::size_t cost_tokens);
  // Of `prompt` at most `limit` tokens; rows of the first `present` are in the timeline. Used parts become recent.
  StateMatch best(std::span<const Token> prompt, std::size_t present, std::size_t limit, bool needs_recurrent);
  // How many of the tokens have their attention rows in files, from the first on. Those files become recent.
  std::size_t saved_rows(std::span<const Token> tokens);
  // Written, or on its way to the disk. One that could not be written is not tried again.
  bool has_file_of(const PartHeader& header) const;
  // Takes it out, its file too.
  void forget(const KeptPartPtr& part);

  // A file for a part, to be filled by the caller and handed back to finish(), which flushes it on another thread.
  Result<StateFileWriter> begin_file(const PartHeader& header, std::span<const Token> tokens);
  void finish_file(StateFileWriter writer, const PartHeader& header);
  // Copies parts that are in memory alone to the folder, coldest first, until half of the budget is safe there or
  // `cancel` is requested.
  Status write_cold(const CancelFlag& cancel);
  // Waits until every file is on the disk. The first error since the last call.
  Status flush(const CancelFlag* cancel = nullptr);
  // Gives the folder's space back: for something that matters more.
  void remove_files();
  std::uint64_t folder_budget_bytes() const { return folder_budget_bytes_; }

  StateStoreCounts counts() const;

 private:
  std::string path_of(const PartHeader& header) const;
  bool room_for(std::uint64_t bytes, double worth);
  void enforce_folder_budget();
  void add_file(const std::string& path);
  double worth(std::size_t cost_tokens, std::uint64_t last_use, std::uint64_t bytes) const;

  mutable std::mutex mutex_;
  std::vector<KeptPartPtr> parts_;
  std::optional<StateLayout> layout_;
  std::uint64_t memory_budget_bytes_;
  std::uint64_t memory_bytes_ = 0;
  std::uint64_t most_memory_bytes_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t dropped_ = 0;
  std::string folder_;
  StateOrigin origin_;
  std::uint64_t folder_budget_bytes_ = 0;
  std::set<std::string> begun_files_;  // paths
  Committer committer_;                // last: its thread uses the others
};

}  // namespace kazeia
