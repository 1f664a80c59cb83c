// The records that decisions rest on, kept for good: a folder with one file per machine, `<machine id>.jsonl`, one
// record a line, in the order of time. Format: docs/ledger_format.md.
//
// Lines are only ever added. A ledger is evidence: what is damaged is an error that names the file and the line, and
// nothing is left out in silence.
//
// Threads: one object may be used by one thread at a time. Processes: several may add and read at once; a lock on the
// machine's file, which the system releases with its holder, keeps lines whole.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/record.h"

namespace kazeia::bench {

class Ledger {
 public:
  explicit Ledger(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  // Everything, in the order of time; of machines that measured in the same second, the one with the lower id first.
  // Errors (kFile): there is no such folder, a file in it with the name of a machine's file but no machine's id, and
  // what read() finds.
  Result<std::vector<Record>> read_all() const;
  // Of one machine; empty if it has no file yet. Errors (kFile): a damaged line, one whose end is missing (with how to
  // mend it), a record of another machine, one that is there twice, or one that is older than the line before.
  Result<std::vector<Record>> read(const std::string& machine_id) const;

  // Adds each record as one line, synced to the disk before the call returns; the folder and the file (mode 0644) are
  // made if need be. All records are looked at before the first is written. Errors: kFile (a record that breaks a rule
  // or whose id is not its own, a ledger that read() refuses), kUsage (a record that is there already, or older than
  // the last of its machine), kWrite. After kWrite, every file is as it was or has all new lines of its machine.
  Status append(std::span<const Record> records);
  Status append(const Record& record) { return append(std::span(&record, 1)); }

 private:
  std::string path_of(const std::string& machine_id) const;

  std::string folder_;
};

// The record whose id begins with `prefix`. kUsage if there is none or more than one.
Result<Record> find_record(std::span<const Record> records, std::string_view prefix);

}  // namespace kazeia::bench
