#pragma once

#include <ctime>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/jinja/template.hpp"

namespace pagoda::chat {

/// A conversation to render, and all else that its template may see.
struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< of objects
  nlohmann::ordered_json tools = nullptr;                             ///< an array, or null for none
  nlohmann::ordered_json documents = nullptr;                         ///< an array, or null for none
  /// The prompt ends where an answer begins.
  bool add_generation_prompt = false;
  /// The prompt ends within the last message, which is to be continued. Not together with add_generation_prompt.
  bool continue_final_message = false;
  /// More variables, by name; they come from the client, as messages, tools and documents do.
  nlohmann::ordered_json chat_template_kwargs = nlohmann::ordered_json::object();
  /// bos_token, eos_token, pad_token, unk_token ...: the model's, so their text counts as the template's.
  std::map<std::string, std::string> special_tokens = {};
  /// Local time, for strftime_now.
  std::tm now = {};
};

/// The text, and which bytes of it came from the input. Special tokens are to be recognised only outside of those: a
/// client that writes "<|im_end|>" ends no turn.
using RenderedPrompt = jinja::Rendered;

/// The chat template of a model: what transformers' apply_chat_template does with it, before the tokenizer.
///
/// Immutable: may be rendered by any number of threads at a time.
class ChatTemplate {
 public:
  /// Fails with invalid_request, for param chat_template, when it is no template or passes the limits.
  static Result<ChatTemplate> parse(std::string_view source, const jinja::Limits& limits = {});

  /// Fails with invalid_request:
  /// - for param messages, with the template's own words, when it refuses them (jinja::refused_by_template is true),
  /// - for param messages, tools, documents, chat_template_kwargs or continue_final_message when these have a wrong
  ///   form,
  /// - for param chat_template when the template fails or passes its limits; the message names the line.
  Result<RenderedPrompt> render(const ChatInput& input) const;

 private:
  ChatTemplate(jinja::Template compiled, bool names_content);

  jinja::Template template_;
  bool names_content_;  // else no message can be continued
};

}  // namespace pagoda::chat
