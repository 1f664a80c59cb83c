// Finding stop strings in a stream of text without ever letting the beginning of one through.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kazeia {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that is now certain to precede every stop string. After stopped() it is always empty.
  std::string push(std::string_view text);
  // The earliest stop string has appeared; text() before it has been handed out completely.
  bool stopped() const { return stopped_; }
  // At the end of a generation: what was held back, because no stop string can follow any more.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kazeia
