#pragma once

#include <string>

#include <tl/expected.hpp>

#include "actors/messages.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::anthropic {

/// Members that every answer has.
struct Head {
  std::string id;  ///< "msg_..." and the id of the HTTP request
  std::string model;
};

/// Makes the job of a body of POST /v1/messages.
ParsedJob parse_messages(const wire::Json& body, const chat::ChatPrompts& prompts, Head head);

/// Makes the tokenizer request of a body of POST /v1/messages/count_tokens: the prompt that /v1/messages would make
/// from the same body.
tl::expected<actors::TokenizeRequest, ErrorAnswer> parse_count_tokens(const wire::Json& body,
                                                                      const chat::ChatPrompts& prompts);

}  // namespace pagoda::http::anthropic
