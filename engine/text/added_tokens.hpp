#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Finds a set of added tokens in text: the leftmost match first, the longest where several start. Immutable.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() { first_.fill(-1); }

  /// `pattern` is what stands in the text for `token`. Error: bad_config for a pattern that is already there.
  Status add(const AddedToken& token, std::string_view pattern);

  /// A stretch of the text: one added token, or (id -1) text in between.
  struct Segment {
    Span span;
    TokenId id = -1;
  };
  /// Cuts valid UTF-8 into segments. With `parse_special` false, special tokens count as ordinary text.
  std::vector<Segment> split(std::string_view text, bool parse_special) const;

 private:
  // A trie in first-child, next-sibling form.
  struct Node {
    char byte = 0;
    std::int32_t child = -1;
    std::int32_t sibling = -1;
    std::int32_t token = -1;  // index in tokens_
  };
  struct Match {
    std::size_t size = 0;
    std::int32_t token = -1;
  };
  std::int32_t child(std::int32_t node, char byte) const;
  Match longest_match(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> first_{};  // nodes of the first bytes; -1 = none
};

}  // namespace pagoda::text
