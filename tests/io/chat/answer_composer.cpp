#include "tests/io/chat/answer_composer.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::chat::testing {
namespace {

using Json = nlohmann::ordered_json;

std::string trimmed(const std::string& text) {
  return std::string(without_outer_white(text));
}

}  // namespace

ComposedAnswer AnswerComposer::compose() {
  answer_ = {};
  num_calls_ = 0;
  const bool is_marked = !dialect_.content.empty();
  if (dialect_.thinking && !chance(3)) write_thinking();
  for (std::size_t more = is_marked ? below(3) : 0; more > 0; --more) {
    if (dialect_.thinking && chance(2)) {
      write_thinking();
    } else {
      write_content(false);
    }
  }
  const bool calls = !chance(3);
  const bool may_speak_first = is_marked || !dialect_.calls->trigger.empty() || !calls;
  if (may_speak_first && chance(2)) write_content(!calls);
  if (calls) {
    write_calls();
    if (dialect_.calls->takes_several && !dialect_.calls->trigger.empty() && chance(4)) write_calls();
    if (chance(4)) write_content(true);
  }
  return std::exchange(answer_, {});
}

std::vector<std::string> AnswerComposer::marks() const {
  std::vector<std::string> all;
  const auto add_mark = [&](const std::string& mark) {
    if (!trimmed(mark).empty()) all.push_back(trimmed(mark));
  };
  add_mark(dialect_.glue);
  if (dialect_.thinking) {
    add_mark(dialect_.thinking->begin);
    add_mark(dialect_.thinking->end);
  }
  for (const Marks& content : dialect_.content) {
    add_mark(content.begin);
    add_mark(content.end);
  }
  const ToolCallForm& form = *dialect_.calls;
  add_mark(form.trigger.empty() ? form.begin() : form.trigger);
  return all;
}

std::string AnswerComposer::words(std::size_t num_pieces) {
  static const std::vector<std::string> kPieces = {
      "a",  "Hello", " world", " ",   "\n",  "\"", "'",  "\\", "{", "}",  "[", "]", "é",    "日本", "🙂",    "<",
      "</", "<|",    "<tool",  "[TO", "```", ",",  ": ", "(",  ")", "\t", "1", "=", "\n\n", "\\n",  "{\"name", "<｜"};
  std::string text;
  const std::vector<std::string> all = marks();
  for (; num_pieces > 0; --num_pieces) {
    std::string piece = pick(kPieces);
    if (chance(6)) {
      piece = pick(all);
      piece.resize(1 + below(piece.size()));
      while (!piece.empty() && (piece.back() & 0x80) != 0) piece.pop_back();
    }
    text += piece;
  }
  return text;
}

// None of the marks may stand in it, nor come about at its end.
std::string AnswerComposer::words_without(const std::vector<std::string>& marks, const std::string& after) {
  for (;;) {
    std::string text = words(1 + below(12));
    const bool is_clear = std::ranges::all_of(marks, [&](const std::string& mark) {
      const std::size_t at = (text + after).find(mark);
      return at == std::string::npos || at >= text.size();
    });
    if (is_clear) return text;
  }
}

std::string AnswerComposer::name() {
  return pick({"f", "get_weather", "a-b", "search2", "Über", "x"}) + std::to_string(below(100));
}

nlohmann::ordered_json AnswerComposer::value(std::size_t depth) {
  switch (below(depth > 2 ? 5 : 8)) {
    case 0:
      return static_cast<int>(below(2000)) - 1000;
    case 1:
      return (static_cast<double>(below(2000)) - 1000) / 64 * (chance(3) ? 1e30 : 1);
    case 2:
      return chance(3) ? Json(nullptr) : Json(chance(2));
    case 5: {
      Json list = Json::array();
      for (std::size_t n = below(4); n > 0; --n) list.push_back(value(depth + 1));
      return list;
    }
    case 6: {
      Json dict = Json::object();
      for (std::size_t n = below(4); n > 0; --n) dict[words(1 + below(3))] = value(depth + 1);
      return dict;
    }
    default:
      return words(below(8));
  }
}

void AnswerComposer::add(AnswerPart::Kind kind, const std::string& text) {
  if (text.empty()) return;
  if (answer_.parts.empty() || answer_.parts.back().kind != kind) answer_.parts.push_back({kind});
  answer_.parts.back().text += text;
}

void AnswerComposer::write_thinking() {
  const Marks& marks = *dialect_.thinking;
  if (!answer_.text.empty() || chance(4)) answer_.text += dialect_.glue;
  const std::string text = trimmed(words_without({trimmed(marks.end)}, marks.end));
  answer_.text += (chance(3) ? trimmed(marks.begin) : marks.begin) + text + white() + marks.end + white();
  add(AnswerPart::Kind::thinking, text);
}

void AnswerComposer::write_content(bool is_last) {
  std::vector<std::string> avoided = {};
  const ToolCallForm& form = *dialect_.calls;
  if (!form.trigger.empty()) avoided.push_back(trimmed(form.trigger));
  if (!dialect_.content.empty()) {
    const Marks& marks = dialect_.content[dialect_.content.size() - 1 - (is_last ? below(dialect_.content.size()) : 0)];
    if (!answer_.text.empty()) answer_.text += dialect_.glue;
    if (!marks.end.empty()) avoided.push_back(marks.end);
    const std::string text = words_without(avoided, marks.end);
    answer_.text += marks.begin + text + marks.end;
    return add(AnswerPart::Kind::content, text);
  }
  // What a part could begin with, where one may.
  std::vector<std::string> begins = marks();
  if (!form.separator.empty()) begins.push_back(form.separator);
  std::string text;
  const bool is_after_calls = !answer_.parts.empty() && answer_.parts.back().kind == AnswerPart::Kind::call;
  const auto could_begin = [&](const std::string& begin) { return begin.starts_with(text) || text.starts_with(begin); };
  do {
    text = trimmed(words_without(avoided, is_last ? "" : "\n" + form.begin()));
  } while (text.empty() || std::ranges::any_of(begins, could_begin));
  if (answer_.text.empty() || is_after_calls) text = white() + text;
  answer_.text += text;
  if (is_last) {
    std::string tail = white();
    if (chance(3)) tail += avoided.empty() ? "<" : avoided.front().substr(0, 1 + below(avoided.front().size() - 1));
    answer_.text += tail;
    text += tail;
  }
  add(AnswerPart::Kind::content, text);
}

void AnswerComposer::write_calls() {
  const ToolCallForm& form = *dialect_.calls;
  answer_.text += dialect_.glue.empty() || chance(3) ? white() : dialect_.glue;
  answer_.text += form.section_begin;
  const std::size_t num_calls = form.takes_several ? 1 + below(3) : 1;
  for (std::size_t i = 0; i < num_calls; ++i) {
    if (i > 0) answer_.text += form.separator;
    write_call();
  }
  answer_.text += form.section_end;
}

void AnswerComposer::write_call() {
  static const std::string kIdBytes = "abcxyzABCXYZ0123456789";
  const ToolCallForm& form = *dialect_.calls;
  AnswerPart part{AnswerPart::Kind::call, name(), "", true};
  Json arguments = Json::object();
  const bool is_json = form.arguments == ArgumentForm::json;
  for (std::size_t n = below(4); n > 0; --n) arguments[is_json ? words(1 + below(3)) : name()] = value(0);
  for (const CallPart& piece : form.call) {
    switch (piece.kind) {
      case CallPart::Kind::text:
        answer_.text += piece.text;
        break;
      case CallPart::Kind::name:
        answer_.text += part.text;
        break;
      case CallPart::Kind::index:
        answer_.text += std::to_string(num_calls_);
        break;
      case CallPart::Kind::id:
        for (std::size_t n = form.id_length > 0 ? form.id_length : 1 + below(64); n > 0; --n) {
          answer_.text += kIdBytes[below(kIdBytes.size())];
        }
        break;
      case CallPart::Kind::arguments:
        if (form.arguments == ArgumentForm::tagged) answer_.text += tagged_arguments(part.text, arguments);
        if (form.arguments == ArgumentForm::python) answer_.text += python_arguments(arguments);
        part.arguments = arguments.dump(is_json && chance(2) ? 2 : -1);
        if (is_json) answer_.text += part.arguments;
        break;
    }
  }
  ++num_calls_;
  answer_.parts.push_back(std::move(part));
}

std::string AnswerComposer::tagged_arguments(const std::string& tool, nlohmann::ordered_json& arguments) {
  const ToolCallForm& form = *dialect_.calls;
  std::string text;
  for (auto& [key, argument] : arguments.items()) {
    if (!text.empty()) text += form.argument_separator;
    text += form.key_begin + key + form.key_end_of(is_text(tool, key));
    if (is_text(tool, key)) {
      argument = chance(6) ? std::string() : words_without({form.value_end}, form.value_end);
      text += argument.get<std::string>();
    } else {
      text += white() + argument.dump(chance(3) ? 1 : -1) + white();
    }
    text += form.value_end;
  }
  return text;
}

std::string AnswerComposer::python_arguments(const nlohmann::ordered_json& arguments) {
  std::string text;
  for (const auto& [key, argument] : arguments.items()) {
    if (!text.empty()) text += pick({", ", ",", " ,\n "});
    text += key + pick({"=", " = "}) + python_value(argument);
  }
  return text;
}

std::string AnswerComposer::python_value(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return python_string(value.get<std::string>());
  if (value.is_number()) return (value >= 0 && chance(4) ? "+" : "") + value.dump();
  const bool is_list = value.is_array() && chance(2);
  std::string text = value.is_object() ? "{" : is_list ? "[" : "(";
  for (const auto& [key, element] : value.items()) {
    if (text.size() > 1) text += pick({", ", ","});
    if (value.is_object()) text += python_string(key) + pick({":", ": "});
    text += python_value(element);
  }
  if (!value.empty() && chance(4)) text += pick({",", " , "});
  return text + (value.is_object() ? "}" : is_list ? "]" : ")");
}

std::string AnswerComposer::python_string(const std::string& text) {
  const char quote = chance(2) ? '"' : '\'';
  std::string out(1, quote);
  for (const char byte : text) {
    if (byte == quote || byte == '\\') {
      out += '\\';
      out += byte;
    } else if (byte == '\n') {
      out += pick({"\\n", "\\x0a", "\\u000A", "\\U0000000a", "\n"});
    } else if (byte == 'a') {
      out += pick({"a", "a", "\\x61", "\\\na"});
    } else {
      out += byte;
    }
  }
  return out + quote;
}

std::string AnswerComposer::damaged() {
  std::string text = compose().text;
  for (std::size_t n = 1 + below(3); n > 0 && !text.empty(); --n) {
    const std::size_t at = below(text.size());
    const std::size_t size = 1 + below(std::min<std::size_t>(text.size() - at, 20));
    switch (below(5)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(at, text.substr(below(text.size()), size));
        break;
      case 2:
        text.insert(at, pick(marks()));
        break;
      case 3:
        text[at] = static_cast<char>(below(256));
        break;
      default:
        text.insert(at, 1, 'Z');
        break;
    }
  }
  return text;
}

std::string AnswerComposer::rubbish(std::size_t num_pieces) {
  const ToolCallForm& form = *dialect_.calls;
  std::vector<std::string> pieces = marks();
  for (const std::string& text : {form.section_begin, form.section_end, form.separator, form.key_begin, form.key_end,
                                  form.json_key_end, form.value_end, form.begin()}) {
    if (!text.empty()) pieces.push_back(text);
  }
  for (const CallPart& part : form.call) {
    if (!part.text.empty()) pieces.push_back(part.text);
  }
  std::string text;
  for (; num_pieces > 0; --num_pieces) {
    switch (below(6)) {
      case 0:
        text += words(1 + below(3));
        break;
      case 1:
        text += name();
        break;
      case 2:
        text += pick({"a=1", "a='b'", "{\"a\": 1}", "{}", "x=[1, {'k': (None, -.5e3)}]", "000000000"});
        break;
      case 3:
        text += form.begin() + name() + (form.call.size() > 2 ? form.call[2].text : "");
        break;
      default:
        text += pick(pieces);
        break;
    }
    if (chance(4)) text += "Z";
    if (chance(10)) text.resize(text.size() - below(std::min<std::size_t>(text.size(), 5)));
  }
  return text;
}

}  // namespace pagoda::chat::testing
