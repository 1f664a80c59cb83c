#include "chat/thinking.h"

#include <algorithm>
#include <utility>

namespace kazeia {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

struct Match {
  std::size_t position = std::string::npos;
  const std::string* marker = nullptr;
};

Match find_first(std::string_view text, const std::vector<std::string>& markers) {
  Match first;
  for (const std::string& marker : markers) {
    const std::size_t at = text.find(marker);
    if (at < first.position) first = {at, &marker};
  }
  return first;
}

// Length of the longest end of `text` that is a proper beginning of one of the markers.
std::size_t unfinished_marker(std::string_view text, const std::vector<std::string>& markers) {
  std::size_t longest = 0;
  for (const std::string& marker : markers) {
    for (std::size_t n = std::min(marker.size() - 1, text.size()); n > longest; --n) {
      if (text.ends_with(std::string_view(marker).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::size_t trailing_space(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

void tidy(std::vector<std::string>& markers) {
  for (std::string& marker : markers) {
    marker.erase(0, std::min(marker.find_first_not_of(kSpace), marker.size()));
    marker.resize(marker.size() - trailing_space(marker));
  }
  std::erase(markers, std::string());
}

}  // namespace

ReplySplitter::ReplySplitter(ReplyMarkers markers, Sink sink) : markers_(std::move(markers)), sink_(std::move(sink)) {
  // White space next to a marker is dropped anyway, so "\n</think>" and "</think>" are one marker.
  tidy(markers_.thinking_ends);
  tidy(markers_.tool_starts);
  const bool thinks = !markers_.thinking_start.empty() && !markers_.thinking_ends.empty();
  if (!thinks) {
    state_ = State::kAnswer;
  } else {
    state_ = markers_.thinking_open ? State::kThinking : State::kStart;
  }
}

void ReplySplitter::push(std::string_view text) {
  pending_ += text;
  while (!pending_.empty() && step(false)) {
  }
}

void ReplySplitter::finish() {
  while (!pending_.empty() && step(true)) {
  }
  pending_.clear();
}

bool ReplySplitter::step(bool last) {
  switch (state_) {
    case State::kStart:
      return step_start(last);
    case State::kThinking:
      return step_thinking(last);
    case State::kAfterThinking:
      pending_.erase(0, std::min(pending_.find_first_not_of(kSpace), pending_.size()));
      if (pending_.empty()) return false;
      state_ = State::kAnswer;
      return true;
    case State::kAnswer:
      return step_answer(last);
    case State::kToolCall:
      emit(ReplyPart::kToolCall, pending_);
      pending_.clear();
      return false;
  }
  return false;
}

bool ReplySplitter::step_start(bool last) {
  const std::size_t begin = pending_.find_first_not_of(kSpace);
  if (begin == std::string::npos && !last) return false;
  const std::string_view text = std::string_view(pending_).substr(std::min(begin, pending_.size()));
  if (text.starts_with(markers_.thinking_start)) {
    pending_.erase(0, begin + markers_.thinking_start.size());
    state_ = State::kThinking;
    return true;
  }
  if (!last && markers_.thinking_start.starts_with(text)) return false;
  state_ = State::kAnswer;
  return true;
}

bool ReplySplitter::step_thinking(bool last) {
  if (thinking_.empty()) pending_.erase(0, std::min(pending_.find_first_not_of(kSpace), pending_.size()));
  const Match end = find_first(pending_, markers_.thinking_ends);
  const std::string_view text = pending_;
  if (end.marker != nullptr) {
    const std::string_view thought = text.substr(0, end.position);
    emit(ReplyPart::kThinking, thought.substr(0, thought.size() - trailing_space(thought)));
    // Some templates let a tool call end the thought: that marker belongs to the call.
    const bool tool = is_tool_start(*end.marker);
    pending_.erase(0, end.position + (tool ? 0 : end.marker->size()));
    state_ = tool ? State::kToolCall : State::kAfterThinking;
    return true;
  }
  const std::size_t marker = last ? 0 : unfinished_marker(text, markers_.thinking_ends);
  const std::string_view thought = text.substr(0, text.size() - marker);
  const std::size_t keep = marker + trailing_space(thought);
  emit(ReplyPart::kThinking, text.substr(0, text.size() - keep));
  pending_.erase(0, pending_.size() - keep);
  return false;
}

bool ReplySplitter::step_answer(bool last) {
  const std::string_view text = pending_;
  const Match tool = find_first(text, markers_.tool_starts);
  if (tool.marker != nullptr) {
    const std::string_view before = text.substr(0, tool.position);
    emit(ReplyPart::kAnswer, before.substr(0, before.size() - trailing_space(before)));
    pending_.erase(0, tool.position);
    state_ = State::kToolCall;
    return true;
  }
  std::size_t keep = last ? 0 : unfinished_marker(text, markers_.tool_starts);
  // White space before a tool call is part of its format; hold it until it is known not to be that.
  if (!last && !markers_.tool_starts.empty()) keep += trailing_space(text.substr(0, text.size() - keep));
  emit(ReplyPart::kAnswer, text.substr(0, text.size() - keep));
  pending_.erase(0, pending_.size() - keep);
  return false;
}

void ReplySplitter::emit(ReplyPart part, std::string_view text) {
  if (text.empty()) return;
  switch (part) {
    case ReplyPart::kThinking:
      thinking_ += text;
      break;
    case ReplyPart::kAnswer:
      answer_ += text;
      break;
    case ReplyPart::kToolCall:
      tool_text_ += text;
      break;
  }
  if (sink_) sink_(part, text);
}

bool ReplySplitter::is_tool_start(const std::string& marker) const {
  return std::find(markers_.tool_starts.begin(), markers_.tool_starts.end(), marker) != markers_.tool_starts.end();
}

}  // namespace kazeia
