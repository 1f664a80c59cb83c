#include "reply_printer.h"

#include <unistd.h>

#include <string>

namespace kazeia::cli {

ReplyPrinter::ReplyPrinter(Output& output, CancelFlag& cancel)
    : output_(output), cancel_(cancel), terminal_(is_terminal(STDOUT_FILENO)), colours_(has_colours(STDOUT_FILENO)) {}

void ReplyPrinter::operator()(ReplyPart part, std::string_view text) {
  if (part == ReplyPart::kToolCall || failed()) return;
  if (part == ReplyPart::kThinking) {
    if (!terminal_) return;
    if (!in_thinking_) put(colours_ ? "\x1b[2m" : "[thinking] ");
    in_thinking_ = true;
  } else {
    leave_thinking();
  }
  if (terminal_) {
    put(without_control_characters(text));
  } else {
    put(text);
  }
  line_open_ = text.back() != '\n';
}

Status ReplyPrinter::finish() {
  leave_thinking();
  if (line_open_) put("\n");
  line_open_ = false;
  return status_;
}

void ReplyPrinter::leave_thinking() {
  if (!in_thinking_) return;
  put(colours_ ? "\x1b[0m\n\n" : "\n[answer] ");
  in_thinking_ = false;
  line_open_ = !colours_;
}

void ReplyPrinter::put(std::string_view text) {
  if (failed()) return;
  status_ = output_.write(text);
  if (!status_.ok()) cancel_.request();
}

TurnEvents show_on(ProgressBar& bar, ReplyPrinter& printer) {
  TurnEvents events;
  events.on_prefill = [&bar](std::size_t done, std::size_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(total));
    if (done == total) bar.clear();
  };
  events.on_text = [&printer](ReplyPart part, std::string_view text) { printer(part, text); };
  return events;
}

}  // namespace kazeia::cli
