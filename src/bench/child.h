// A child process whose standard output is read line by line while it runs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace kazeia::bench {

// Runs `arguments` (the program's path first) with standard error inherited. `on_line` gets every line without its end.
// Errors: kFile if the program cannot be started, kEngine if it ends with another status than 0 or by a signal,
// kCancelled if `cancel` was requested (the child is terminated).
Status run_child(const std::vector<std::string>& arguments, const std::function<void(std::string_view)>& on_line,
                 const CancelFlag* cancel = nullptr);

// The path of the running program, for starting it again or a program beside it.
std::string own_program_path();

}  // namespace kazeia::bench
