#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "io/jinja/template.hpp"

namespace pagoda::chat {

/// Finds the end of the last message in a prompt, with a tag after its text.
class ContinuedMessage {
 public:
  /// Puts the tag after the last text of the last message. Errors: there is no such text.
  static Result<ContinuedMessage> mark(nlohmann::ordered_json& messages);

  /// Ends the prompt at the tag. Errors: the template does not show the message.
  Status cut(jinja::Rendered& prompt) const;

 private:
  explicit ContinuedMessage(std::string text) : text_(std::move(text)) {}

  std::string text_;  // text of the message
};

}  // namespace pagoda::chat
