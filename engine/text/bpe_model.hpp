#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/token_model.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Byte-pair encoding over a vocabulary.
class BpeModel final : public TokenModel {
 public:
  /// Error: bad_config that names the wrong token or merge (an id used twice, a merge of unknown tokens, ...).
  static Result<BpeModel> create(const BpeSpec& spec);

  /// Memory that encode reuses from piece to piece.
  struct Scratch {
    struct Symbol {
      TokenId id;
      std::int32_t previous;
      std::int32_t next;
    };
    struct Merge {
      std::uint64_t order;  // rank, then position
      TokenId merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Merge> queue;
  };

  /// Appends the ids of one piece of valid UTF-8 to `ids`. O(n log n).
  void encode(std::string_view piece, Scratch& scratch, TokenIds& ids) const;

  Status encode_pieces(std::string_view buffer, std::span<const Span> pieces, bool at_text_start,
                       TokenIds& ids) const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string_view token(TokenId id) const override;
  bool has(TokenId id) const override { return id >= 0 && id < end_id() && known_[static_cast<std::size_t>(id)]; }
  TokenId end_id() const override { return static_cast<TokenId>(known_.size()); }
  std::size_t size() const override { return size_; }

 private:
  struct MergeSlot {
    std::uint64_t pair = kEmptyPair;
    std::uint32_t rank = 0;
    TokenId merged = -1;
  };
  static constexpr std::uint64_t kEmptyPair = ~std::uint64_t{0};

  Status add_tokens(const BpeSpec& spec);
  Status add_merges(const BpeSpec& spec);
  std::size_t merge_index(std::uint64_t pair) const;
  const MergeSlot* find_merge(TokenId left, TokenId right) const;
  TokenId character_id(char32_t character, std::string_view utf8) const;
  void push_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;
  void merge_symbols(Scratch& scratch) const;

  // Token strings, one after the other; token i is [offsets_[i], offsets_[i + 1]).
  std::string texts_;
  std::vector<std::uint32_t> offsets_;
  std::vector<bool> known_;
  std::size_t size_ = 0;
  std::vector<TokenId> tokens_by_hash_;  // open addressing; -1 = free
  std::vector<TokenId> characters_;      // ids of the one-character tokens below U+10000; -1 = none
  std::vector<MergeSlot> merges_;        // open addressing
  int merge_shift_ = 63;
  std::vector<TokenId> byte_tokens_;  // ids of "<0x00>".."<0xFF>" with byte_fallback; -1 = none
  std::optional<TokenId> unk_;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace pagoda::text
