#include "engine/text/marks.hpp"

#include <algorithm>

namespace pagoda::text {
namespace {

constexpr std::string_view kWhite = " \t\n\r\f\v";

}  // namespace

Match begins_with(std::string_view text, std::string_view mark) {
  if (text.starts_with(mark)) return Match::yes;
  return mark.starts_with(text) ? Match::maybe : Match::no;
}

std::size_t find_mark(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  std::size_t at = text.find(mark.front());
  while (at != std::string_view::npos && begins_with(text.substr(at), mark) == Match::no) {
    at = text.find(mark.front(), at + 1);
  }
  return std::min(at, text.size());
}

bool is_white(char byte) {
  return kWhite.find(byte) != std::string_view::npos;
}

std::size_t leading_white(std::string_view text) {
  return std::min(text.find_first_not_of(kWhite), text.size());
}

std::size_t trailing_white(std::string_view text) {
  return text.size() - (text.find_last_not_of(kWhite) + 1);
}

std::string_view without_leading_white(std::string_view text) {
  return text.substr(leading_white(text));
}

std::string_view without_outer_white(std::string_view text) {
  text = without_leading_white(text);
  return text.substr(0, text.size() - trailing_white(text));
}

void MarkSet::add(std::string_view mark, std::size_t id) {
  if (mark.empty()) return;
  marks_.push_back({std::string(mark), id});
  first_bytes_.set(static_cast<std::uint8_t>(mark.front()));
}

MarkSet::Found MarkSet::at_begin(std::string_view text, bool over) const {
  Found found{.at = text.size()};
  for (const Mark& mark : marks_) {
    const Match match = begins_with(text, mark.text);
    if (match == Match::maybe && !over) return {.match = Match::maybe};
    if (match == Match::yes && mark.text.size() > found.size) found = {Match::yes, 0, mark.text.size(), mark.id};
  }
  return found;
}

MarkSet::Found MarkSet::find(std::string_view text, bool over) const {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!first_bytes_.test(static_cast<std::uint8_t>(text[at]))) continue;
    Found found = at_begin(text.substr(at), over);
    if (found.match == Match::no) continue;
    found.at = at;
    return found;
  }
  return {.at = text.size()};
}

}  // namespace pagoda::text
