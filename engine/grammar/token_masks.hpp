#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/item_sets.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/vocabulary.hpp"

namespace pagoda::grammar {

/// Computes the tokens that may follow in an item set. The most recently used masks are kept.
class TokenMasks {
 public:
  /// `sets` and `vocabulary` must outlive this.
  TokenMasks(ItemSets& sets, const Vocabulary& vocabulary);

  /// Returns the mask of the tokens that go on from `set`, and of the end tokens if `set` is complete; valid until the
  /// next call. Empty if it would take more work than `max_work`, or more than `max_bytes` of item sets; the item sets
  /// that were made stay known.
  std::span<const std::uint32_t> mask(SetId set, std::uint64_t max_work, std::size_t max_bytes = kMaxWalkBytes);

  std::size_t num_bytes() const { return kept_.size() * num_words_ * sizeof(std::uint32_t); }

 private:
  struct Kept {
    SetId set = ItemSets::kNothing;
    std::uint64_t last_used = 0;
    std::vector<std::uint32_t> mask;
  };
  /// Tokens that a set takes as a whole, and the largest number of characters that they may have.
  struct Shortcut {
    const TokenSlice* slice = nullptr;
    std::int32_t max_characters = 0;
  };

  bool is_exhausted() const { return sets_.work() > max_work_ || sets_.num_bytes() > max_bytes_; }
  Kept& place();
  Shortcut shortcut(SetId set) const;
  bool compute(SetId set, std::span<std::uint32_t> mask);
  bool walk(SetId from, const TokenTrie& trie, std::span<std::uint32_t> mask);
  bool check_longer(SetId from, std::int32_t max_characters, std::span<std::uint32_t> mask);

  ItemSets& sets_;
  const Vocabulary& vocabulary_;
  std::size_t num_words_;
  std::vector<Kept> kept_;
  std::unordered_map<SetId, std::size_t> place_of_;
  std::uint64_t now_ = 0;
  // Limits of the mask that is being made, in all work and bytes of sets_:
  std::uint64_t max_work_ = 0;
  std::size_t max_bytes_ = 0;
  std::vector<SetId> path_;  ///< item sets on the path of a walk
};

}  // namespace pagoda::grammar
