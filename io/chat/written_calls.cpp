#include "io/chat/written_calls.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "io/chat/mark_text.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Returns whether the values are equal. The order of an object's members does not count.
bool is_same(const json& value, const ordered_json& other) {
  return value == json::parse(other.dump());
}

/// Returns the end of the object, list or string that begins at `begin`; 0 where it does not end.
std::size_t end_of_value(std::string_view text, std::size_t begin) {
  int depth = 0;
  char quote = 0;
  for (auto i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || (c == '\'' && depth == 0)) {
      quote = c;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
    if (depth == 0 && quote == 0) return i + 1;
  }
  return 0;
}

/// Returns the end of these arguments if they begin at `begin` as a JSON object; else 0.
std::size_t end_of_json(std::string_view text, std::size_t begin, const ordered_json& arguments) {
  if (!text.substr(begin).starts_with('{')) return 0;
  const auto end = end_of_value(text, begin);
  if (end == 0) return 0;
  const auto value = json::parse(text.substr(begin, end - begin), nullptr, false);
  return !value.is_discarded() && is_same(value, arguments) ? end : 0;
}

/// Parses a literal of Python; a discarded value for other texts. The strings of probes need no escapes.
json python_value(std::string_view literal) {
  if (literal == "True") return true;
  if (literal == "False") return false;
  if (literal == "None") return nullptr;
  if (literal.size() >= 2 && literal.front() == '\'') return std::string(literal.substr(1, literal.size() - 2));
  return json::parse(literal, nullptr, false);
}

std::size_t end_of_python(std::string_view text, std::size_t begin, const ordered_json& arguments) {
  auto at = begin;
  for (const auto& [key, value] : arguments.items()) {
    if (at != begin) {
      if (!text.substr(at).starts_with(',')) return 0;
      at = std::min(text.find_first_not_of(' ', at + 1), text.size());
    }
    const auto head = key + "=";
    if (!text.substr(at).starts_with(head)) return 0;
    at += head.size();
    const bool is_plain = at < text.size() && std::string_view("'\"{[").find(text[at]) == std::string_view::npos;
    const auto end = is_plain ? std::min(text.find_first_of(",)", at), text.size()) : end_of_value(text, at);
    if (end == 0) return 0;
    const auto read = python_value(text.substr(at, end - at));
    if (read.is_discarded() || !is_same(read, value)) return 0;
    at = end;
  }
  return at;
}

std::size_t end_of_tagged(std::string_view text, std::size_t begin, const ToolCallForm& form,
                          const ordered_json& arguments) {
  std::string written;
  for (const auto& [key, value] : arguments.items()) {
    if (!written.empty()) written += form.argument_separator;
    written += form.key_begin + key + form.key_end_of(value.is_string());
    written += (value.is_string() ? value.get<std::string>() : value.dump()) + form.value_end;
  }
  return !written.empty() && text.substr(begin).starts_with(written) ? begin + written.size() : 0;
}

std::size_t end_of_arguments(std::string_view text, std::size_t begin, const ToolCallForm& form,
                             const ordered_json& arguments) {
  switch (form.arguments) {
    case ArgumentForm::json:
      return end_of_json(text, begin, arguments);
    case ArgumentForm::python:
      return end_of_python(text, begin, arguments);
    case ArgumentForm::tagged:
      return end_of_tagged(text, begin, form, arguments);
  }
  return 0;
}

/// Checks a text against the expected parts, from its begin.
class Expectation {
 public:
  explicit Expectation(std::string_view text) : text_(text) {}

  void consume(std::string_view expected) {
    is_met_ = is_met_ && text_.substr(at_).starts_with(expected);
    if (is_met_) at_ += expected.size();
  }
  void consume_arguments(const ToolCallForm& form, const ordered_json& arguments) {
    const auto end = is_met_ ? end_of_arguments(text_, at_, form, arguments) : 0;
    is_met_ = end != 0;
    at_ = end;
  }
  void consume_part(const CallPart& part, const ToolCallForm& form, const ProbeCall& call, std::size_t index) {
    switch (part.kind) {
      case CallPart::Kind::text:
        return consume(part.text);
      case CallPart::Kind::name:
        return consume(call.name);
      case CallPart::Kind::id:
        return consume(call.id);
      case CallPart::Kind::index:
        return consume(std::to_string(index));
      case CallPart::Kind::arguments:
        return consume_arguments(form, call.arguments);
    }
  }
  bool is_met() const { return is_met_ && at_ == text_.size(); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool is_met_ = true;
};

}  // namespace

std::optional<ArgumentRange> find_arguments(std::string_view text, std::size_t from, const ToolCallForm& form,
                                            const ordered_json& arguments) {
  for (auto begin = from; begin < text.size(); ++begin) {
    if (const auto end = end_of_arguments(text, begin, form, arguments); end != 0) return ArgumentRange{begin, end};
  }
  return std::nullopt;
}

bool is_written(std::string_view text, const ToolCallForm& form, const std::vector<ProbeCall>& calls) {
  Expectation expected(marks::without_space(text));
  expected.consume(form.section_begin);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) expected.consume(form.separator);
    for (const auto& part : form.call) expected.consume_part(part, form, calls[i], i);
  }
  expected.consume(form.section_end);
  return expected.is_met();
}

}  // namespace pagoda::chat
