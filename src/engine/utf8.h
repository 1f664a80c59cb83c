// Bytes in, whole characters out: the text of a token may end in the middle of one.
#pragma once

#include <string>
#include <string_view>

namespace kazeia {

// Invalid bytes become U+FFFD as the WHATWG Encoding Standard's decoder does it (one per maximal ill-formed
// subsequence; overlong forms, surrogates and values above U+10FFFF are ill-formed), so at most three bytes
// are ever held back.
class Utf8Stream {
 public:
  // The characters that `bytes` completes, as valid UTF-8.
  std::string push(std::string_view bytes);
  // A character has begun and is not complete. At the end of a generation nobody asks for its rest: it is dropped and
  // not replaced, because it was cut off and not damaged.
  bool holding() const { return !held_.empty(); }

 private:
  std::string held_;  // a proper prefix of a well-formed character
};

}  // namespace kazeia
