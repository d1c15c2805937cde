#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda::memory {

/// Identifies the content of a full block: its tokens and all tokens before them.
struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.low, self.high); }
};

using HashKey = std::array<std::uint64_t, 2>;

/// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012) over 64-bit little-endian words. The key prevents
/// attackers from constructing two prompts with one hash.
class SipHash128 {
 public:
  explicit SipHash128(const HashKey& key);
  void add(std::uint64_t word);
  BlockHash finish();

 private:
  void round();
  std::uint64_t v0_, v1_, v2_, v3_;
  std::uint64_t num_words_ = 0;
};

/// Returns the parent of a sequence's first block: a hash of the values that must be equal besides the tokens.
BlockHash root_hash(const HashKey& key, std::string_view cache_salt, AdapterId adapter);

/// Returns the hash of a full block behind `parent`. Each part of the hashed words starts with a tag of its type and
/// its length.
BlockHash chain_hash(const HashKey& key, const BlockHash& parent, std::span<const TokenId> tokens);

}  // namespace pagoda::memory
