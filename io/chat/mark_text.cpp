#include "io/chat/mark_text.hpp"

#include <algorithm>
#include <array>

namespace pagoda::chat::marks {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kTriangleBegin = "◁";
constexpr std::string_view kTriangleEnd = "▷";
constexpr std::string_view kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/";

bool is_within_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// Returns the length of the mark that the text begins with, from `begin` to `end` without `stops` between them.
std::size_t length_of_mark(std::string_view text, std::string_view begin, std::string_view end,
                           std::string_view stops) {
  if (!text.starts_with(begin)) return 0;
  const auto stop = text.find(end, begin.size());
  if (stop == std::string_view::npos || stop == begin.size()) return 0;
  const auto inside = text.substr(begin.size(), stop - begin.size());
  return inside.find_first_of(stops) == std::string_view::npos ? stop + end.size() : 0;
}

std::size_t length_of_bracketed(std::string_view text) {
  const auto length = length_of_mark(text, "[", "]", "[{\n");
  if (length == 0) return 0;
  const auto inside = text.substr(1, length - 2);
  return inside.find_first_not_of(kCapitals) == std::string_view::npos ? length : 0;
}

/// Returns the begin of a mark that is not finished; the text's size for none.
std::size_t begin_of_open_mark(std::string_view text) {
  const auto angle = text.find_last_of("<>");
  if (angle != std::string_view::npos && text[angle] == '<' && text.find('\n', angle) == std::string_view::npos) {
    return angle;
  }
  const auto bracket = text.find_last_not_of(kCapitals);
  if (bracket != std::string_view::npos && text[bracket] == '[' && bracket + 1 < text.size()) return bracket;
  return text.size();
}

/// Returns the end of a mark whose begin is in `before`; 0 for none.
std::size_t end_of_cut_mark(std::string_view text, std::string_view before) {
  const auto angle = text.find_first_of("<>\n");
  if (angle != std::string_view::npos && text[angle] == '>') return angle + 1;
  const auto bracket = text.find_first_not_of(kCapitals);
  if (bracket != std::string_view::npos && text[bracket] == ']') {
    const auto opened = before.find_last_not_of(kCapitals);
    if (opened != std::string_view::npos && before[opened] == '[') return bracket + 1;
  }
  return 0;
}

}  // namespace

std::string_view without_left_space(std::string_view text) {
  const auto begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view without_right_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

std::string_view without_space(std::string_view text) {
  return without_right_space(without_left_space(text));
}

std::string_view first(std::string_view text) {
  const auto length = std::max({length_of_mark(text, "<", ">", "<\n"), length_of_bracketed(text),
                                length_of_mark(text, kTriangleBegin, kTriangleEnd, "\n")});
  return text.substr(0, length);
}

std::string_view last(std::string_view text) {
  for (const auto begin : std::array{std::string_view("<"), std::string_view("["), kTriangleBegin}) {
    const auto at = text.rfind(begin);
    if (at == std::string_view::npos) continue;
    if (const auto mark = first(text.substr(at)); !mark.empty() && at + mark.size() == text.size()) return mark;
  }
  return {};
}

std::string_view find(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(1)) {
    if (const auto mark = first(text); !mark.empty()) return mark;
  }
  return {};
}

std::size_t common_begin(std::string_view left, std::string_view right) {
  const auto differ = std::ranges::mismatch(left, right);
  auto length = static_cast<std::size_t>(differ.in1 - left.begin());
  while (length > 0 && length < left.size() && is_within_character(left[length])) --length;
  return begin_of_open_mark(left.substr(0, length));
}

std::size_t common_end(std::string_view left, std::string_view right) {
  std::size_t length = 0;
  const auto most = std::min(left.size(), right.size());
  while (length < most && left[left.size() - length - 1] == right[right.size() - length - 1]) ++length;
  while (length > 0 && is_within_character(left[left.size() - length])) --length;
  const auto begin = left.size() - length;
  return length - end_of_cut_mark(left.substr(begin), left.substr(0, begin));
}

}  // namespace pagoda::chat::marks
