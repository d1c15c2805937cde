#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Two token lists, read as one: the second continues the first.
struct JoinedTokens {
  std::span<const TokenId> first;
  std::span<const TokenId> second;

  std::int32_t size() const { return static_cast<std::int32_t>(first.size() + second.size()); }
  TokenId operator[](std::int32_t position) const {
    const auto at = static_cast<std::size_t>(position);
    return at < first.size() ? first[at] : second[at - first.size()];
  }
  /// Returns the tokens [end - count, end) if they are in one of the lists, else none.
  std::span<const TokenId> together(std::int32_t end, std::int32_t count) const {
    const auto size = static_cast<std::int32_t>(first.size());
    if (end <= size) return first.subspan(static_cast<std::size_t>(end - count), static_cast<std::size_t>(count));
    if (end - count < size) return {};
    return second.subspan(static_cast<std::size_t>(end - count - size), static_cast<std::size_t>(count));
  }
  /// Returns how many tokens before `place` equal the last tokens of `text`, at most `limit`.
  std::int32_t num_in_common(std::int32_t place, const JoinedTokens& text, std::int32_t limit) const {
    const std::int32_t most = std::min({limit, place, text.size()});
    const auto its = text.together(text.size(), most);
    // Mostly all tokens agree, and comparing memory is far faster than comparing one token after the other.
    if (!its.empty() && std::ranges::equal(together(place, most), its)) return most;
    std::int32_t length = 0;
    while (length < most && (*this)[place - 1 - length] == text[text.size() - 1 - length]) ++length;
    return length;
  }
};

/// Finds the places of a text where the same `length` tokens stand as at the end of this or another text, the latest
/// first. A place is the position behind these tokens. Takes about 12 bytes for each place, and constant time to add
/// one: all places whose tokens have one hash value are a linked list, as in the compression of LZ77.
class EarlierPlaces {
 public:
  /// Places before `first` are left to another object. `length` is positive.
  EarlierPlaces(std::int32_t length, std::int32_t first);

  /// Adds the places up to `end`, and including it. The tokens before must be those of earlier calls.
  void add(const JoinedTokens& tokens, std::int32_t end);
  /// Returns the first place that was not added.
  std::int32_t end() const { return first_ + static_cast<std::int32_t>(previous_.size()); }

  /// Returns the latest added place whose tokens have the hash value of the last tokens of `text`; -1 = none. The
  /// tokens may differ all the same.
  std::int32_t latest_like(const JoinedTokens& text) const;
  /// Returns the next older place of this list; -1 = none.
  std::int32_t before(std::int32_t place) const { return previous_[static_cast<std::size_t>(place - first_)]; }

 private:
  std::size_t list_of(const JoinedTokens& tokens, std::int32_t place) const;
  void link(const JoinedTokens& tokens, std::int32_t place);

  std::int32_t length_;
  std::int32_t first_;
  std::vector<std::int32_t> latest_;    ///< by hash value; -1 = none. The size is a power of two
  std::vector<std::int32_t> previous_;  ///< by place, from first_ on
};

}  // namespace pagoda::scheduling
