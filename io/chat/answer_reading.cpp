#include "io/chat/answer_reading.hpp"

#include <optional>
#include <utility>

#include "io/chat/answer_grammar.hpp"
#include "io/chat/dialect_probe.hpp"

namespace pagoda::chat {
namespace {

/// Returns whether an answer to the prompt may have thinking. A prompt that ends with thinking's end mark has closed
/// it.
Thinking thinking_after(const AnswerDialect& dialect, std::string_view prompt) {
  if (!dialect.thinking) return Thinking::none;
  if (ends_in_thinking(dialect, prompt)) return Thinking::open;
  const auto end = prompt.find_last_not_of(" \t\r\n");
  const bool is_closed = end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(dialect.thinking->end);
  return is_closed ? Thinking::none : Thinking::chosen;
}

/// Returns the dialect of an answer that continues a message: the text around its parts is already written.
AnswerDialect inside_message(AnswerDialect dialect) {
  dialect.thinking.reset();
  dialect.glue.clear();
  if (!std::exchange(dialect.content, {}).empty()) dialect.calls.reset();
  return dialect;
}

std::int64_t num_thinking_tokens(const AnswerReading& reading, const SequenceResult& output) {
  std::vector<AnswerEvent> events;
  auto parser = reading.parser();
  std::string_view text = output.text;
  std::size_t at = 0;
  std::int64_t count = 0;
  std::int64_t num_open = 0;  // tokens that may be the begin of the end mark
  for (const std::uint64_t end : output.text_ends) {
    const std::size_t size = end - at;
    const bool has_begun = parser.is_thinking();
    parser.feed(text.substr(at, size), events);
    events.clear();
    at = end;
    if (!parser.may_think()) return count;
    if (!parser.is_thinking()) num_open = 0;
    if (!has_begun || !parser.is_thinking()) continue;
    ++num_open;
    if (parser.num_held() < size) count += std::exchange(num_open, 0);
  }
  return count + num_open;
}

}  // namespace

void Answer::add(const AnswerEvent& event) {
  switch (event.kind) {
    case Kind::thinking:
    case Kind::content:
      add(Part{.kind = event.kind, .text = event.text});
      break;
    case Kind::call_begin:
      add(Part{.kind = event.kind, .name = event.text, .call = event.call});
      break;
    case Kind::arguments:
      parts_.back().text += event.text;
      break;
    case Kind::call_end:
      break;
  }
}

void Answer::add(Part part) {
  const bool goes_on = !parts_.empty() && parts_.back().kind == part.kind && part.kind != Kind::call_begin;
  if (goes_on) {
    parts_.back().text += part.text;
  } else {
    parts_.push_back(std::move(part));
  }
}

std::string Answer::joined(Kind kind) const {
  std::string text;
  for (const Part& part : parts_) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

std::vector<Answer::Part> Answer::calls() const {
  std::vector<Part> calls;
  for (const Part& part : parts_) {
    if (part.kind == Kind::call_begin) calls.push_back(part);
  }
  return calls;
}

AnswerReading without_thinking(AnswerReading reading) {
  if (!reading.dialect->thinking) return reading;
  auto dialect = std::make_shared<AnswerDialect>(*reading.dialect);
  dialect->thinking.reset();
  reading.dialect = std::move(dialect);
  reading.options.in_thinking = false;
  return reading;
}

Answer read_answer(const AnswerReading& reading, std::string_view text) {
  std::vector<AnswerEvent> events;
  auto parser = reading.parser();
  parser.feed(text, events);
  parser.finish(events);
  Answer answer;
  for (const AnswerEvent& event : events) answer.add(event);
  return answer;
}

std::optional<std::int64_t> num_thinking_tokens(const AnswerReading& reading, const RequestResult& result) {
  if (!reading.dialect->thinking) return std::nullopt;
  std::int64_t count = 0;
  for (const SequenceResult& output : result.outputs) count += num_thinking_tokens(reading, output);
  return count;
}

void scope_stop_strings(const AnswerDialect& dialect, GenerateRequest& request) {
  request.sampling.answer_marks.reset();
  if (!dialect.thinking && dialect.content.empty()) return;
  AnswerMarks& marks = request.sampling.answer_marks.emplace();
  marks.glue = dialect.glue;
  for (const Marks& content : dialect.content) marks.content.push_back({content.begin, content.end});
  if (!dialect.thinking) return;
  marks.thinking_begin = dialect.thinking->begin;
  marks.thinking_end = dialect.thinking->end;
  marks.begins_in_thinking = thinking_after(dialect, *request.prompt) == Thinking::open;
}

void scope_stop_strings(const ChatPrompts& prompts, bool continues, GenerateRequest& request) {
  if (request.sampling.stop.empty()) return;
  const auto dialect = prompts.dialect();
  scope_stop_strings(continues ? inside_message(*dialect) : *dialect, request);
}

Result<AnswerReading> prepare(const ChatPrompts& prompts, ChatInput chat, const ToolUse& use,
                              GenerateRequest& request) {
  AnswerReading reading;
  reading.dialect = prompts.dialect();
  if (chat.continue_final_message) {
    reading.dialect = std::make_shared<const AnswerDialect>(inside_message(*reading.dialect));
  }
  const AnswerDialect& dialect = *reading.dialect;
  const bool may_call = use.choice != ToolChoice::none && !use.tools.empty();
  if (may_call && !dialect.calls) {
    return fail(ErrorCode::unsupported,
                "tools are not supported by this model: its chat template shows no known form of tool calls "
                "(--answer-dialect can set one)",
                "tools");
  }
  if (auto status = prompts.apply(std::move(chat), request); !status) return fail(std::move(status.error()));
  const Thinking thinking = thinking_after(dialect, *request.prompt);
  scope_stop_strings(dialect, request);
  reading.options.begin_is_call = !request.sampling.structured_outputs;
  reading.options.must_call = use.choice == ToolChoice::required && !request.sampling.structured_outputs;
  auto grammar = answer_grammar(dialect, use, thinking, request.sampling.structured_outputs);
  if (!grammar) return fail(std::move(grammar.error()));
  request.sampling.structured_outputs = std::move(*grammar);
  request.sampling.shows_marks = may_call || dialect.thinking || !dialect.content.empty();
  reading.options.in_thinking = thinking == Thinking::open;
  reading.options.takes_calls = may_call;
  if (may_call && dialect.calls->begins_with_name()) {
    for (const Tool& tool : use.tools) reading.options.names.push_back(tool.name);
  }
  if (!may_call || dialect.calls->arguments != ArgumentForm::tagged) return reading;
  reading.options.is_text = [tools = std::make_shared<const std::vector<Tool>>(use.tools)](std::string_view tool,
                                                                                           std::string_view key) {
    for (const Tool& each : *tools) {
      if (each.name == tool) return is_text_argument(each.parameters, key);
    }
    return false;
  };
  return reading;
}

}  // namespace pagoda::chat
