#include "engine/text/added_tokens.hpp"

#include <algorithm>

#include "engine/text/literals.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t position = last_character_offset(text);
  return is_word(next_character(text, position));
}

bool starts_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t position = 0;
  return is_word(next_character(text, position));
}

std::size_t trailing_space_offset(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = last_character_offset(text);
    std::size_t position = last;
    if (!is_white_space(next_character(text, position))) break;
    text = text.substr(0, last);
  }
  return text.size();
}

std::size_t leading_space_size(std::string_view text) {
  std::size_t size = 0;
  for (std::size_t next = 0; next < text.size() && is_white_space(next_character(text, next)); size = next) {
  }
  return size;
}

}  // namespace

std::int32_t AddedTokenMatcher::child(std::int32_t node, char byte) const {
  std::int32_t next = nodes_[static_cast<std::size_t>(node)].child;
  while (next >= 0 && nodes_[static_cast<std::size_t>(next)].byte != byte) {
    next = nodes_[static_cast<std::size_t>(next)].sibling;
  }
  return next;
}

Status AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  std::int32_t node = -1;
  for (const char byte : pattern) {
    std::int32_t next = node < 0 ? first_[static_cast<std::uint8_t>(byte)] : child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      if (node < 0) {
        first_[static_cast<std::uint8_t>(byte)] = next;
      } else {
        Node& parent = nodes_[static_cast<std::size_t>(node)];
        fresh.sibling = parent.child;
        parent.child = next;
      }
      nodes_.push_back(fresh);
    }
    node = next;
  }
  Node& last = nodes_[static_cast<std::size_t>(node)];
  if (last.token >= 0) {
    return fail(ErrorCode::bad_config,
                "added tokens \"" + tokens_[static_cast<std::size_t>(last.token)].content + "\" and \"" +
                    token.content + "\" look the same in the text",
                "added_tokens");
  }
  last.token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  return {};
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_match(std::string_view text, std::size_t at,
                                                          std::span<const ByteRange> literals) const {
  Match match;
  std::int32_t node = first_[static_cast<std::uint8_t>(text[at])];
  for (std::size_t size = 1; node >= 0; ++size) {
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    const bool counts = token >= 0 && !(tokens_[static_cast<std::size_t>(token)].special &&
                                        overlaps_literal({at, at + size}, literals));
    if (counts) match = {size, token};
    if (at + size == text.size()) break;
    node = child(node, text[at + size]);
  }
  return match;
}

std::vector<AddedTokenMatcher::Segment> AddedTokenMatcher::split(std::string_view text,
                                                                 std::span<const ByteRange> literals) const {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const Match match = longest_match(text, at, literals);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    std::size_t begin = at;
    std::size_t end = at + match.size;
    at = end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(trailing_space_offset(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space_size(text.substr(end));
    if (done < begin) segments.push_back({{done, begin}, -1});
    segments.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({{done, text.size()}, -1});
  return segments;
}

}  // namespace pagoda::text
