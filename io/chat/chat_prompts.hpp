#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "io/chat/answer_dialect.hpp"
#include "io/chat/chat_template.hpp"
#include "io/chat/history_form.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// The Jinja source of a chat template, under the name that the model gives it.
struct NamedTemplate {
  std::string name = "default";
  std::string source = {};
  std::string origin = {};  ///< the file that it comes from, which errors begin with; may be empty
};

/// Makes prompts of conversations, with the model's chat template. Of several, the one named "tool_use" is for
/// conversations with tools, "rag" for those with documents, and "default" for all others and where there is no such
/// one. Immutable; thread-safe.
class ChatPrompts {
 public:
  /// `special_tokens` are the variables that templates know tokens by: bos_token, eos_token, ... Error: as
  /// ChatTemplate::parse.
  static Result<ChatPrompts> parse(std::string source, std::map<std::string, std::string> special_tokens);

  /// The same of several, each with a name of its own, one of them "default". Another that cannot be read is left out,
  /// with a warning in the log.
  static Result<ChatPrompts> parse(std::vector<NamedTemplate> templates,
                                   std::map<std::string, std::string> special_tokens);

  /// The names of the templates that are for some conversations only.
  static constexpr std::array<const char*, 2> kSpecialNames{"tool_use", "rag"};

  /// Sets the prompt of `request` and marks in it what the client wrote, which is never read as special tokens.
  /// Fills in the special tokens and the time of `chat`. Brings earlier answers into the form that the template takes
  /// (HistoryForm); where it leaves calls out, these stand in the contents, as the dialect has them. Errors: as
  /// ChatTemplate::render.
  Status apply(ChatInput chat, GenerateRequest& request) const;

  /// Returns the text of the same prompt.
  Result<std::string> render(ChatInput chat) const;

  /// Renders earlier answers as they are given, for probing what the template makes of them.
  Result<std::string> render_plain(ChatInput chat) const;

  /// Returns what the template for this conversation takes of earlier answers.
  const HistoryForm& history_form(const ChatInput& chat) const;

  /// Whether the template that is for this conversation looks at a variable of this name.
  bool knows(std::string_view variable, const ChatInput& chat) const;

  /// How the model writes its answers: as derive_dialect makes it out the first time that it is asked for, or as told.
  std::shared_ptr<const AnswerDialect> dialect() const;
  /// Before anybody asks for it.
  void set_dialect(AnswerDialect dialect) const;

  /// The Jinja source of the template that is for all conversations.
  const std::string& source() const;

  /// As given to parse.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  struct LazyHistoryForm {
    std::once_flag once;
    HistoryForm form;
  };

  /// One template and what it makes of contents.
  struct Variant {
    std::string name;
    std::string source;
    ChatTemplate chat_template;
    bool takes_texts = true;             ///< a content may be a string
    bool takes_parts = true;             ///< a content may be a list of parts
    bool takes_tools_of_system = false;  ///< tools stand in the system's message, as a text, and only there
    std::shared_ptr<LazyHistoryForm> history = std::make_shared<LazyHistoryForm>();
  };

  explicit ChatPrompts(std::map<std::string, std::string> special_tokens)
      : special_tokens_(std::move(special_tokens)) {}
  const Variant* find(std::string_view name) const;
  const Variant& chosen(const ChatInput& chat) const;
  Result<RenderedPrompt> prompt(ChatInput chat) const;
  Result<RenderedPrompt> rendered(const Variant& variant, ChatInput chat) const;
  bool shows(const Variant& variant, const nlohmann::ordered_json& content) const;
  bool shows_tools_of_system_only(const Variant& variant) const;
  const HistoryForm& history_form(const Variant& variant) const;
  std::string write_calls(const nlohmann::ordered_json& tool_calls) const;

  struct LazyDialect {
    std::once_flag once;
    std::shared_ptr<const AnswerDialect> dialect;
  };

  std::vector<Variant> variants_;
  std::shared_ptr<LazyDialect> dialect_ = std::make_shared<LazyDialect>();
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace pagoda::chat
