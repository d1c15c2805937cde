#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Finds a set of added tokens in text: the leftmost match first, and the longest where several begin. Immutable.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() { first_.fill(-1); }

  /// `pattern`: the text that stands for `token`. Error: bad_config for a pattern that is already there.
  Status add(const AddedToken& token, std::string_view pattern);

  /// A part of the text: one added token, or text between added tokens (id -1).
  struct Segment {
    Span span;
    TokenId id = -1;
  };
  /// Cuts valid UTF-8 into segments. Special tokens with a byte in one of `literals` (ordered, disjoint) are not found,
  /// and they do not hide another token that begins in them.
  std::vector<Segment> split(std::string_view text, std::span<const ByteRange> literals) const;
  bool empty() const { return tokens_.empty(); }

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
  /// Returns the longest token that begins at `at` and counts there.
  Match longest_match(std::string_view text, std::size_t at, std::span<const ByteRange> literals) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> first_{};  // nodes of the first bytes; -1 = none
};

}  // namespace pagoda::text
