// What a measured process tells the one that started it: one JSON object a line.
//   {"begin":"decode_4096","tokens":32}   from here on something is measured
//   {"name":"decode_4096","value":12.1}   what it came to
//   {"fact":"route","text":"cpu"}         what should be known about it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kazeia::bench {

struct ChildLine {
  enum class Kind { kBegin, kSample, kFact };
  Kind kind = Kind::kSample;
  std::string name;
  double value = 0;         // kSample
  std::int64_t tokens = 0;  // kBegin: how many the measured work is about; 0 if it is about something else
  std::string text;         // kFact
};

// nullopt for anything else: a child may write what it likes besides.
std::optional<ChildLine> parse_child_line(std::string_view line);

// Writes one line to standard output, at once.
void tell_begin(const std::string& name, std::int64_t tokens = 0);
void tell_sample(const std::string& name, double value);
void tell_fact(const std::string& name, const std::string& text);

}  // namespace kazeia::bench
