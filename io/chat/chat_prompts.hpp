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

/// The Jinja source of a chat template, with the name that the model gives it.
struct NamedTemplate {
  std::string name = "default";
  std::string source = {};
  std::string origin = {};  ///< file that holds the template, for messages; may be empty
};

/// Makes prompts from conversations, with the model's chat template. Among several templates, "tool_use" is for
/// conversations with tools, "rag" for conversations with documents, and "default" for all others and where the model
/// has no such template. Immutable; thread-safe.
class ChatPrompts {
 public:
  /// `special_tokens` are the variables that hold special tokens in templates: bos_token, eos_token, ... Errors: as
  /// ChatTemplate::parse.
  static Result<ChatPrompts> parse(std::string source, std::map<std::string, std::string> special_tokens);

  /// Parses several templates with different names, one of them "default". A template of another name that cannot be
  /// parsed is left out, with a warning in the log.
  static Result<ChatPrompts> parse(std::vector<NamedTemplate> templates,
                                   std::map<std::string, std::string> special_tokens);

  /// Names of the templates that are for some conversations only.
  static constexpr std::array<const char*, 2> kSpecialNames{"tool_use", "rag"};

  /// Sets the prompt of `request` and marks the client's text in it, which is never read as special tokens. Sets the
  /// special tokens and the time of `chat`. Converts earlier answers to the form that the template supports
  /// (HistoryForm). Where the template does not show calls, the calls are added to the contents, in the dialect's form.
  /// Errors: as ChatTemplate::render.
  Status apply(ChatInput chat, GenerateRequest& request) const;

  /// Returns the text of the prompt that apply() would set.
  Result<std::string> render(ChatInput chat) const;

  /// Renders earlier answers as they are given, to probe what the template does with them.
  Result<std::string> render_plain(ChatInput chat) const;

  /// Returns the form of earlier answers that the template for this conversation supports.
  const HistoryForm& history_form(const ChatInput& chat) const;

  /// Returns whether the source of the template for this conversation contains this text, the name of a variable.
  bool knows(std::string_view variable, const ChatInput& chat) const;

  /// Returns the form of the model's answers: that of set_dialect, or the one that derive_dialect finds at the first
  /// call.
  std::shared_ptr<const AnswerDialect> dialect() const;
  /// Call before the first call of dialect(); later calls have no effect.
  void set_dialect(AnswerDialect dialect) const;

  /// Returns the Jinja source of the default template.
  const std::string& source() const;

  /// Returns the special tokens given to parse.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  struct LazyHistoryForm {
    std::once_flag once;
    HistoryForm form;
  };

  /// One template and the forms of messages that it supports.
  struct Variant {
    std::string name;
    std::string source;
    ChatTemplate chat_template;
    bool takes_texts = true;             ///< whether a content may be a string
    bool takes_parts = true;             ///< whether a content may be a list of parts
    bool takes_tools_of_system = false;  ///< whether tools must be a text in the system's message, and nowhere else
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
