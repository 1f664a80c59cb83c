#include "commit.h"

#include "kazeia_commit.h"

namespace kazeia::cli {

BuildCommit build_commit() {
  return {KAZEIA_COMMIT, KAZEIA_DIRTY != 0};
}

}  // namespace kazeia::cli
