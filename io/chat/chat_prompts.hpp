#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/request/generate_request.hpp"
#include "io/chat/chat_template.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// Makes prompts of conversations, with the model's chat template. Immutable; thread-safe.
class ChatPrompts {
 public:
  /// `special_tokens` are the variables that templates know tokens by: bos_token, eos_token, ... Error: as
  /// ChatTemplate::parse.
  static Result<ChatPrompts> parse(std::string source, std::map<std::string, std::string> special_tokens);

  /// Sets the prompt of `request` and marks in it what the client wrote, which is never read as special tokens.
  /// The special tokens and the time of `chat` are filled in here. Errors: as ChatTemplate::render.
  Status apply(ChatInput chat, GenerateRequest& request) const;

  /// The text alone.
  Result<std::string> render(ChatInput chat) const;

  /// Whether the template looks at a variable of this name.
  bool knows(std::string_view variable) const { return source_.find(variable) != std::string::npos; }

 private:
  ChatPrompts(std::string source, ChatTemplate chat_template, std::map<std::string, std::string> special_tokens);
  Result<RenderedPrompt> rendered(ChatInput chat) const;
  bool shows(const nlohmann::ordered_json& content) const;

  std::string source_;
  ChatTemplate template_;
  std::map<std::string, std::string> special_tokens_;
  bool takes_texts_ = true;  ///< a content may be a string
  bool takes_parts_ = true;  ///< a content may be a list of parts
};

}  // namespace pagoda::chat
