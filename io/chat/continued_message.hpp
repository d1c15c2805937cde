#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "io/jinja/template.hpp"

namespace pagoda::chat {

/// Finds where the last message ends in a prompt, by a tag behind its text.
class ContinuedMessage {
 public:
  /// Puts the tag behind the last text of the last message. Fails when there is none.
  static Result<ContinuedMessage> mark(nlohmann::ordered_json& messages);

  /// Ends the prompt where the tag stands. Fails when the template left the message out.
  Status cut(jinja::Rendered& prompt) const;

 private:
  explicit ContinuedMessage(std::string text) : text_(std::move(text)) {}

  std::string text_;  // of the message
};

}  // namespace pagoda::chat
