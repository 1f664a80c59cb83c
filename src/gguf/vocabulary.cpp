#include "gguf/vocabulary.h"

#include <array>
#include <cassert>
#include <utility>

#include <fmt/format.h>

namespace kazeia::gguf {
namespace {

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;

constexpr std::array<std::pair<std::string_view, std::int32_t>, 26> kSpecial = {{
    {"<|endoftext|>", kControl},        {"<|im_start|>", kControl},        {"<|im_end|>", kControl},
    {"<|object_ref_start|>", kControl}, {"<|object_ref_end|>", kControl},  {"<|box_start|>", kControl},
    {"<|box_end|>", kControl},          {"<|quad_start|>", kControl},      {"<|quad_end|>", kControl},
    {"<|vision_start|>", kControl},     {"<|vision_end|>", kControl},      {"<|vision_pad|>", kControl},
    {"<|image_pad|>", kControl},        {"<|video_pad|>", kControl},       {"<tool_call>", kUserDefined},
    {"</tool_call>", kUserDefined},     {"<|fim_prefix|>", kControl},      {"<|fim_middle|>", kControl},
    {"<|fim_suffix|>", kControl},       {"<|fim_pad|>", kControl},         {"<|repo_name|>", kControl},
    {"<|file_sep|>", kControl},         {"<tool_response>", kUserDefined}, {"</tool_response>", kUserDefined},
    {"<think>", kUserDefined},          {"</think>", kUserDefined},
}};

std::string utf8(std::uint32_t code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3F))};
}

// Byte-level BPE writes a byte as the character of that number if it is printable, and the others in their
// order from U+0100.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    characters.push_back(utf8(printable ? byte : next++));
  }
  return characters;
}

constexpr std::string_view kChatTemplate =
    R"jinja({%- set thinking_off = enable_thinking is defined and enable_thinking is false -%}
{%- set first = namespace(system='') -%}
{%- if messages and messages[0].role == 'system' -%}{%- set first.system = messages[0].content -%}{%- endif -%}
{%- if tools -%}
{{- '<|im_start|>system\n' -}}
{%- if first.system -%}{{- first.system + '\n\n' -}}{%- endif -%}
{{- '# Tools\n\nYou may call these functions:\n<tools>' -}}
{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\n</tools>\n\nTo call one, answer with a JSON object inside tags:\n<tool_call>\n{"name": "<function>", "arguments": {}}\n</tool_call><|im_end|>\n' -}}
{%- elif first.system -%}
{{- '<|im_start|>system\n' + first.system + '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- set content = message.content if message.content is string else '' -%}
{%- if message.role == 'system' and loop.first -%}
{%- elif message.role == 'assistant' -%}
{%- if '</think>' in content -%}{%- set content = content.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}
{{- '<|im_start|>assistant\n' + content -}}
{%- for call in (message.tool_calls or []) -%}
{%- set function = call.function or call -%}
{{- '\n<tool_call>\n{"name": "' + function.name + '", "arguments": ' -}}
{%- if function.arguments is string -%}{{- function.arguments -}}{%- else -%}{{- function.arguments | tojson -}}{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{{- '<|im_start|>user\n<tool_response>\n' + content + '\n</tool_response><|im_end|>\n' -}}
{%- else -%}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n<think>\n' -}}
{%- if thinking_off -%}{{- '\n</think>\n\n' -}}{%- endif -%}
{%- endif -%})jinja";

}  // namespace

std::string_view chat_template() {
  return kChatTemplate;
}

Vocabulary make_vocabulary(std::uint32_t size, std::uint32_t first_special) {
  assert(first_special >= 30000 && first_special + kSpecial.size() <= size);
  Vocabulary vocabulary;
  vocabulary.tokens.reserve(size);
  vocabulary.token_types.reserve(size);
  const auto add = [&](std::string token, std::int32_t type) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.token_types.push_back(type);
  };
  const auto add_merged = [&](const std::string& left, const std::string& right) {
    add(left + right, kNormal);
    vocabulary.merges.push_back(left + ' ' + right);
  };

  const std::vector<std::string> bytes = byte_characters();
  for (const std::string& byte : bytes) add(byte, kNormal);
  const std::string& space = bytes[' '];
  const std::string& newline = bytes['\n'];
  add_merged(newline, newline);
  add_merged(space, space);
  add_merged(space + space, space + space);

  // Syllables of two letters: strings of them are unique whatever is put together.
  std::vector<std::string> syllables;
  for (const char consonant : std::string_view("bcdfghjklmnpqrstvwxz")) {
    for (const char vowel : std::string_view("aeiouy")) {
      add_merged(std::string(1, consonant), std::string(1, vowel));
      syllables.push_back(vocabulary.tokens.back());
    }
  }
  for (const std::string& one : syllables) add_merged(space, one);
  for (const std::string& one : syllables) {
    for (const std::string& two : syllables) {
      add_merged(one, two);
      add_merged(space + one, two);
    }
  }
  // The rest is reachable by its id only: merges for all of them would double the header.
  for (std::size_t i = 0; vocabulary.tokens.size() < first_special; ++i) {
    const std::size_t count = syllables.size();
    add(space + syllables[i % count] + syllables[i / count % count] + syllables[i / count / count % count], kNormal);
  }
  for (const auto& [token, type] : kSpecial) add(std::string(token), type);
  while (vocabulary.tokens.size() < size) add(fmt::format("[PAD{}]", vocabulary.tokens.size()), kUnused);
  vocabulary.end_of_text = first_special;
  vocabulary.end_of_turn = first_special + 2;
  return vocabulary;
}

}  // namespace kazeia::gguf
