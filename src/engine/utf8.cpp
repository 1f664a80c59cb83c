#include "engine/utf8.h"

namespace kazeia {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  std::size_t length = 0;            // of the whole character; 0 = no character begins with this byte
  unsigned char second_low = 0x80;   // range of the second byte, where overlong forms, surrogates and values
  unsigned char second_high = 0xBF;  // above U+10FFFF show
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  return {0};
}

bool continues(const std::string& held, unsigned char byte) {
  const Lead lead = classify(static_cast<unsigned char>(held.front()));
  if (held.size() == 1) return byte >= lead.second_low && byte <= lead.second_high;
  return byte >= 0x80 && byte <= 0xBF;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!held_.empty()) {
      if (continues(held_, byte)) {
        held_ += c;
        if (held_.size() == classify(static_cast<unsigned char>(held_.front())).length) {
          out += held_;
          held_.clear();
        }
        continue;
      }
      out += kReplacement;
      held_.clear();  // and this byte is looked at again, as the beginning of a character
    }
    const std::size_t length = classify(byte).length;
    if (length == 0) {
      out += kReplacement;
    } else if (length == 1) {
      out += c;
    } else {
      held_ = c;
    }
  }
  return out;
}

}  // namespace kazeia
