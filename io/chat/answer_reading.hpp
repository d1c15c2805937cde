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

/// How the answers to one request are read.
struct AnswerReading {
  std::shared_ptr<const AnswerDialect> dialect = std::make_shared<const AnswerDialect>();
  AnswerParser::Options options = {};

  AnswerParser parser() const { return AnswerParser(*dialect, options); }
};

/// An answer taken apart.
class Answer {
 public:
  using Kind = AnswerEvent::Kind;
  struct Part {
    Kind kind = Kind::content;  ///< thinking, content, or call_begin for a call
    std::string text = {};      ///< of a call its arguments, as JSON
    std::string name = {};      ///< of a call
    std::size_t call = 0;
  };

  /// Takes what the next event says.
  void add(const AnswerEvent& event);
  /// Takes a part of another answer.
  void add(Part part);
  /// In their order; no two of thinking or of content in a row.
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

/// The whole text of an answer.
Answer read_answer(const AnswerReading& reading, std::string_view text);

/// How many tokens of the outputs are of the thinking, without those of its marks. Nothing where the model does not
/// think.
std::optional<std::int64_t> num_thinking_tokens(const AnswerReading& reading, const RequestResult& result);

/// Where the stop strings of `request` count, whose prompt is set: in the answer, not in the thinking. `dialect` is
/// that of the answer.
void scope_stop_strings(const AnswerDialect& dialect, GenerateRequest& request);
/// The same for a prompt that ends within the last message, where `continues` says so.
void scope_stop_strings(const ChatPrompts& prompts, bool continues, GenerateRequest& request);

/// Sets the prompt of `request`, and what its answer is held to: content to its structured_outputs, calls to `use`.
/// Errors: as ChatPrompts::apply and answer_grammar, and unsupported, param = "tools", where the model's template shows
/// no form of calls.
Result<AnswerReading> prepare(const ChatPrompts& prompts, ChatInput chat, const ToolUse& use, GenerateRequest& request);

}  // namespace pagoda::chat
