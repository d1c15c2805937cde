// Long answers made to be slow or to be lost, in every known dialect.

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/parsed_answer.hpp"

namespace pagoda::chat {
namespace {

using namespace testing;

constexpr std::size_t kShort = 50'000;
constexpr std::size_t kLong = 10 * kShort;

struct HostileText {
  std::string name;
  /// A text that begins an answer, and one that comes again and again behind it.
  std::function<std::pair<std::string, std::string>(const AnswerDialect&)> make;
};

std::string call_mark(const AnswerDialect& dialect) {
  return dialect.calls->trigger.empty() ? dialect.calls->begin() : dialect.calls->trigger;
}

std::string without_last(std::string text) {
  text.pop_back();
  return text;
}

/// Up to the arguments.
std::string head(const AnswerDialect& dialect) {
  std::string text = dialect.calls->section_begin;
  for (const CallPart& part : dialect.calls->call) {
    if (part.kind == CallPart::Kind::arguments) break;
    text += part.kind == CallPart::Kind::text   ? part.text
            : part.kind == CallPart::Kind::name ? "f"
            : part.kind == CallPart::Kind::id   ? "123456789"
                                                : "0";
  }
  return text;
}

/// Up to a value, as far as that may be done without knowing of it.
std::string value(const AnswerDialect& dialect, const std::string& key) {
  const ToolCallForm& form = *dialect.calls;
  if (form.arguments == ArgumentForm::tagged) return head(dialect) + form.key_begin + key + form.key_end_of(true);
  return head(dialect) + (form.arguments == ArgumentForm::python ? key + "=" : "{\"" + key + "\": ");
}

std::string call(const AnswerDialect& dialect) {
  const ToolCallForm& form = *dialect.calls;
  std::string text = head(dialect) + (form.arguments == ArgumentForm::json ? "{}" : "");
  const auto arguments = std::ranges::find(form.call, CallPart::Kind::arguments, &CallPart::kind);
  for (auto part = arguments; part != form.call.end(); ++part) {
    text += part->kind == CallPart::Kind::id ? "123456789" : part->text;
  }
  return text + form.section_end;
}

std::string thinking_begin(const AnswerDialect& dialect) {
  return dialect.thinking ? dialect.thinking->begin : "";
}

std::vector<HostileText> hostile_texts() {
  using Pair = std::pair<std::string, std::string>;
  return {
      {"call marks", [](const auto& d) { return Pair("", call_mark(d)); }},
      {"call marks and letters", [](const auto& d) { return Pair("", call_mark(d) + "Z"); }},
      {"begins of call marks", [](const auto& d) { return Pair("", without_last(call_mark(d))); }},
      {"begins of call marks and letters", [](const auto& d) { return Pair("", without_last(call_mark(d)) + "Z"); }},
      {"begins of calls", [](const auto& d) { return Pair("", d.calls->begin()); }},
      {"heads of calls", [](const auto& d) { return Pair("", head(d)); }},
      {"heads of calls and letters", [](const auto& d) { return Pair("", head(d) + "Z"); }},
      {"calls", [](const auto& d) { return Pair("", call(d)); }},
      {"calls and letters", [](const auto& d) { return Pair("", call(d) + " Z"); }},
      {"calls and white space", [](const auto& d) { return Pair(call(d), "\n"); }},
      {"a long name", [](const auto& d) { return Pair(d.calls->begin(), "Z"); }},
      {"a long id", [](const auto& d) { return Pair(head(d), "0"); }},
      {"a long key", [](const auto& d) { return Pair(head(d) + d.calls->key_begin, "Z"); }},
      {"keys", [](const auto& d) { return Pair(head(d), d.calls->key_begin + "Z"); }},
      {"opened objects", [](const auto& d) { return Pair(head(d), "{"); }},
      {"opened lists in a value", [](const auto& d) { return Pair(value(d, "n"), "["); }},
      {"opened dictionaries in a value", [](const auto& d) { return Pair(value(d, "n"), "{'Z':"); }},
      {"closed lists in a value", [](const auto& d) { return Pair(value(d, "n"), "]"); }},
      {"an endless string", [](const auto& d) { return Pair(value(d, "n") + "\"", "Z\\"); }},
      {"an endless text", [](const auto& d) { return Pair(value(d, "text"), "Z"); }},
      {"begins of the end of a text", [](const auto& d) { return Pair(value(d, "text"), d.calls->value_end + " "); }},
      {"white space in a value", [](const auto& d) { return Pair(value(d, "n") + "1", " \n"); }},
      {"digits", [](const auto& d) { return Pair(value(d, "n"), "1_"); }},
      {"white space", [](const auto&) { return Pair("", " \n"); }},
      {"white space in content", [](const auto&) { return Pair("Z", "Z \n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"); }},
      {"white space in thinking", [](const auto& d) { return Pair(thinking_begin(d) + "Z", " \n"); }},
      {"glue", [](const auto& d) { return Pair("", d.glue + " "); }},
      {"thinking", [](const auto& d) { return Pair("", thinking_begin(d) + "Z"); }},
      {"begins of the end of thinking",
       [](const auto& d) { return Pair(thinking_begin(d), "\n" + (d.thinking ? without_last(d.thinking->end) : "")); }},
      {"content in marks",
       [](const auto& d) { return Pair("", d.content.empty() ? "Z" : d.content[0].begin + "Z" + d.content[0].end); }},
      {"opened objects in content", [](const auto&) { return Pair("", "{"); }},
      {"bytes that are no text", [](const auto&) { return Pair("", std::string("\xff\x00\x80Z", 4)); }},
  };
}

std::string hostile_text(const HostileText& hostile, const AnswerDialect& dialect, std::size_t size) {
  const auto [begin, again] = hostile.make(dialect);
  std::string text = begin;
  while (text.size() < size) text += again.empty() ? "Z" : again;
  return text;
}

AnswerParser hostile_parser(const AnswerDialect& dialect) {
  AnswerParser::Options options;
  options.takes_calls = true;
  options.is_text = [](std::string_view, std::string_view key) { return key == "text"; };
  return {dialect, options};
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// In every dialect: one half as a whole, the other in short pieces.
double seconds_for(const HostileText& hostile, std::size_t size) {
  double seconds = 0;
  for (const KnownDialect& known : known_dialects()) {
    const std::string text = hostile_text(hostile, known.dialect, size);
    std::vector<AnswerEvent> events;
    const double begin = cpu_seconds();
    AnswerParser parser = hostile_parser(known.dialect);
    parser.feed(std::string_view(text).substr(0, size / 2), events);
    for (std::size_t at = size / 2; at < text.size(); at += 3) {
      parser.feed(std::string_view(text).substr(at, 3), events);
      if (events.size() > 1000) events.clear();
    }
    parser.finish(events);
    seconds += cpu_seconds() - begin;
  }
  return seconds;
}

TEST(HostileAnswer, TakesTimeLinearInItsLength) {
  for (const HostileText& hostile : hostile_texts()) {
    // Ten times where time is linear, a hundred times where it is quadratic. What disturbs is not there each time.
    double ratio = 1000;
    for (int attempt = 0; attempt < 3 && ratio > 40; ++attempt) {
      const double seconds = seconds_for(hostile, kShort);
      ratio = std::min(ratio, seconds_for(hostile, kLong) / seconds);
    }
    EXPECT_LE(ratio, 40) << hostile.name;
  }
}

TEST(HostileAnswer, LosesNothing) {
  for (const HostileText& hostile : hostile_texts()) {
    for (const KnownDialect& known : known_dialects()) {
      std::string text = hostile_text(hostile, known.dialect, kShort);
      text += std::string(600, '\x01');  // behind this no name or key is open
      const std::string said = line_of(parse_whole(hostile_parser(known.dialect), text));
      for (const char byte : {'Z', '\xff'}) {
        EXPECT_EQ(std::ranges::count(said, byte), std::ranges::count(text, byte)) << hostile.name << ' ' << known.name;
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::chat
