// Shows a reply on stdout while it streams.
#pragma once

#include <string_view>

#include "base/cancel.h"
#include "base/result.h"
#include "chat/thinking.h"
#include "chat/turn.h"
#include "terminal.h"

namespace kazeia::cli {

// On a terminal the thinking is shown too, dimmed (or in brackets without colours), and control characters are
// left out. Anywhere else only the answer is written, byte for byte.
class ReplyPrinter {
 public:
  // `cancel` is requested when stdout fails, so that nobody generates for nobody.
  ReplyPrinter(Output& output, CancelFlag& cancel);

  void operator()(ReplyPart part, std::string_view text);
  // Ends the reply with a line break. The first write error, if there was one.
  Status finish();
  bool failed() const { return !status_.ok(); }

 private:
  void put(std::string_view text);
  void leave_thinking();

  Output& output_;
  CancelFlag& cancel_;
  bool terminal_;
  bool colours_;
  bool in_thinking_ = false;
  bool line_open_ = false;
  Status status_;
};

// The events of one answer: the prompt's progress on `bar`, the text to `printer`. Both must outlive the answer.
TurnEvents show_on(ProgressBar& bar, ReplyPrinter& printer);

}  // namespace kazeia::cli
