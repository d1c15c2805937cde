#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "io/chat/answer_parser.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/chat/tools.hpp"

namespace pagoda::chat {

/// How to parse the answers to one request.
struct AnswerReading {
  std::shared_ptr<const AnswerDialect> dialect = std::make_shared<const AnswerDialect>();
  AnswerParser::Options options = {};

  AnswerParser parser() const { return AnswerParser(*dialect, options); }
};

/// A parsed answer.
class Answer {
 public:
  using Kind = AnswerEvent::Kind;
  struct Part {
    Kind kind = Kind::content;  ///< thinking, content, or call_begin for a call
    std::string text = {};      ///< for a call its arguments, as JSON
    std::string name = {};      ///< name of the tool of a call
    std::size_t call = 0;
  };

  /// Adds the next event.
  void add(const AnswerEvent& event);
  /// Adds a part of another answer.
  void add(Part part);
  /// Returns the parts in order. Two parts of thinking, or two of content, are never adjacent.
  const std::vector<Part>& parts() const { return parts_; }

  std::string thinking() const { return joined(Kind::thinking); }
  std::string content() const { return joined(Kind::content); }
  std::vector<Part> calls() const;

 private:
  std::string joined(Kind kind) const;

  std::vector<Part> parts_;
};

/// Returns a reading to which the thinking is content, with its marks as the model writes them.
AnswerReading without_thinking(AnswerReading reading);

/// Parses the whole text of an answer.
Answer read_answer(const AnswerReading& reading, std::string_view text);

/// Returns the number of tokens of the thinking in all outputs, without its marks. Nothing for a model without
/// thinking.
std::optional<std::int64_t> num_thinking_tokens(const AnswerReading& reading, const RequestResult& result);

/// Sets where the stop strings of `request` apply: in the answer, not in the thinking. The prompt must be set.
/// `dialect` is the dialect of the answer.
void scope_stop_strings(const AnswerDialect& dialect, GenerateRequest& request);
/// Calls scope_stop_strings with the dialect of `prompts`. `continues`: whether the prompt ends within the last
/// message.
void scope_stop_strings(const ChatPrompts& prompts, bool continues, GenerateRequest& request);

/// Sets the prompt of `request` and the constraints of its answer: its structured_outputs for content, `use` for calls.
/// Errors: as ChatPrompts::apply and answer_grammar, and unsupported, param = "tools", where the model's template has
/// no known form of calls.
Result<AnswerReading> prepare(const ChatPrompts& prompts, ChatInput chat, const ToolUse& use, GenerateRequest& request);

}  // namespace pagoda::chat
