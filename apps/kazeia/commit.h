// Which state of the sources this program was built from.
#pragma once

namespace kazeia::cli {

struct BuildCommit {
  const char* id = "";  // 40 hex digits; empty if it was not built in a repository
  bool dirty = false;   // with changes that are in no commit
};
BuildCommit build_commit();

}  // namespace kazeia::cli
