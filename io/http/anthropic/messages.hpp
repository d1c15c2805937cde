#pragma once

#include <string>

#include <tl/expected.hpp>

#include "actors/messages.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::anthropic {

/// What every answer says of itself.
struct Head {
  std::string id;  ///< "msg_...": of the HTTP request
  std::string model;
};

/// POST /v1/messages: the job of a body.
ParsedJob parse_messages(const wire::Json& body, const chat::ChatPrompts& prompts, Head head);

/// POST /v1/messages/count_tokens: the conversation in the model's template, as the same body without max_tokens would
/// make it.
tl::expected<actors::TokenizeRequest, ErrorAnswer> parse_count_tokens(const wire::Json& body,
                                                                      const chat::ChatPrompts& prompts);

}  // namespace pagoda::http::anthropic
