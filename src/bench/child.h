// A child process whose standard output is read line by line while it runs.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace kazeia::bench {

// Called while the child runs, on the calling thread; any but `on_line` may be empty.
struct ChildEvents {
  std::function<void(pid_t)> on_start;
  std::function<void(std::string_view)> on_line;  // without its end
  std::function<void()> on_wait;                  // at least ten times a second
};

// Runs `arguments` (the program's path first) with standard error inherited.
// Errors: kFile if the program cannot be started, kEngine if it ends with another status than 0 or by a signal,
// kCancelled if `cancel` was requested (the child is terminated).
Status run_child(const std::vector<std::string>& arguments, const ChildEvents& events,
                 const CancelFlag* cancel = nullptr);
Status run_child(const std::vector<std::string>& arguments, const std::function<void(std::string_view)>& on_line,
                 const CancelFlag* cancel = nullptr);

// For the child: it ends with the process that started it, however that one ends.
void end_with_parent();

// The path of the running program, for starting it again or a program beside it.
std::string own_program_path();

}  // namespace kazeia::bench
