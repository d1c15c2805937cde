#pragma once

#include <ctime>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/jinja/template.hpp"

namespace pagoda::chat {

/// A conversation to render, and all other values for its template.
struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< array of objects
  nlohmann::ordered_json tools = nullptr;                             ///< array, or null for none
  nlohmann::ordered_json documents = nullptr;                         ///< array, or null for none
  /// Whether the prompt ends where an answer begins.
  bool add_generation_prompt = false;
  /// Whether the prompt ends within the last message, so that the answer continues it. Excludes add_generation_prompt.
  bool continue_final_message = false;
  /// Further variables by name; like messages, tools and documents they come from the client.
  nlohmann::ordered_json chat_template_kwargs = nlohmann::ordered_json::object();
  /// bos_token, eos_token, pad_token, unk_token ... of the model. Their text counts as text of the template.
  std::map<std::string, std::string> special_tokens = {};
  /// Local time, for strftime_now.
  std::tm now = {};
};

/// The text, and the ranges of bytes that come from the input. Special tokens must be recognized only outside of these
/// ranges: a client that writes "<|im_end|>" does not end a turn.
using RenderedPrompt = jinja::Rendered;

/// The chat template of a model. Renders as transformers' apply_chat_template does before the tokenizer.
///
/// Immutable: any number of threads may render at the same time.
class ChatTemplate {
 public:
  /// Errors: invalid_request, param chat_template, when `source` is no template or exceeds the limits.
  static Result<ChatTemplate> parse(std::string_view source, const jinja::Limits& limits = {});

  /// Errors: invalid_request. With param messages and the template's own message, when the template refuses the
  /// messages (jinja::refused_by_template is true). With param messages, tools, documents, chat_template_kwargs or
  /// continue_final_message, when these have a wrong form. With param chat_template and the line in the message, when
  /// the template fails or exceeds its limits.
  Result<RenderedPrompt> render(const ChatInput& input) const;

 private:
  ChatTemplate(jinja::Template compiled, bool names_content);

  jinja::Template template_;
  bool names_content_;  // whether the source contains "content"; else no message can be continued
};

}  // namespace pagoda::chat
