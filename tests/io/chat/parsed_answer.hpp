#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/chat/answer_parser.hpp"

namespace pagoda::chat::testing {

/// A part of an answer, however many events it took.
struct AnswerPart {
  enum class Kind : std::uint8_t { thinking, content, call };

  Kind kind = Kind::content;
  std::string text = {};  ///< of a call: the tool's name
  std::string arguments = {};
  bool has_ended = false;  ///< a call

  bool operator==(const AnswerPart&) const = default;
};

/// Throws where events do not come as they should.
inline std::vector<AnswerPart> parts_of(const std::vector<AnswerEvent>& events) {
  using Kind = AnswerEvent::Kind;
  const auto check = [](bool is_so) {
    if (!is_so) throw std::logic_error("an event where it may not come");
  };
  std::vector<AnswerPart> parts;
  std::size_t num_calls = 0;
  for (const AnswerEvent& event : events) {
    const bool in_call =
        !parts.empty() && parts.back().kind == AnswerPart::Kind::call && !std::as_const(parts).back().has_ended;
    check(in_call == (event.kind == Kind::arguments || event.kind == Kind::call_end));
    if (event.kind == Kind::thinking || event.kind == Kind::content) {
      const auto kind = event.kind == Kind::thinking ? AnswerPart::Kind::thinking : AnswerPart::Kind::content;
      check(!event.text.empty() && event.call == 0);
      if (parts.empty() || parts.back().kind != kind) parts.push_back({kind});
      parts.back().text += event.text;
    } else if (event.kind == Kind::call_begin) {
      check(event.call == num_calls++);
      parts.push_back({AnswerPart::Kind::call, event.text});
    } else {
      check(event.call + 1 == num_calls);
      parts.back().arguments += event.text;
      parts.back().has_ended = event.kind == Kind::call_end;
    }
  }
  return parts;
}

/// The parts of `text`, which comes in pieces of the sizes that `next_size` says.
template <class NextSize>
std::vector<AnswerPart> parse_cut(AnswerParser parser, std::string_view text, NextSize next_size) {
  std::vector<AnswerEvent> events;
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, next_size());
    text.remove_prefix(piece.size());
    parser.feed(piece, events);
  }
  parser.finish(events);
  return parts_of(events);
}

inline std::vector<AnswerPart> parse_whole(AnswerParser parser, std::string_view text) {
  return parse_cut(std::move(parser), text, [&] { return text.size(); });
}

/// Parts as a line: T(thinking) C(content) name{arguments}. What has not ended has a "..." in the end.
inline std::string line_of(const std::vector<AnswerPart>& parts) {
  std::string line;
  for (const AnswerPart& part : parts) {
    if (!line.empty()) line += ' ';
    if (part.kind == AnswerPart::Kind::thinking) line += "T(" + part.text + ")";
    if (part.kind == AnswerPart::Kind::content) line += "C(" + part.text + ")";
    if (part.kind == AnswerPart::Kind::call) line += part.text + part.arguments + (part.has_ended ? "" : "...");
  }
  return line;
}

}  // namespace pagoda::chat::testing
