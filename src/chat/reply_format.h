// What a ReplyParser keeps of upstream's rendering. Private to this room: it includes upstream's headers.
#pragma once

#include "chat.h"

#include "chat/tool_calls.h"

namespace kazeia {

struct ReplyParser::Format {
  common_chat_parser_params parameters;
};

}  // namespace kazeia
