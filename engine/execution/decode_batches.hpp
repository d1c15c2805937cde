#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pagoda::execution {

/// A size that decode steps are rounded up to on a device that records steps and replays the records. A small number of
/// sizes needs a small number of records.
struct DecodeBatch {
  std::int32_t num_sequences = 0;    ///< padding included
  std::int32_t tokens_each = 1;      ///< average number of tokens of a sequence: 1, or with drafts a power of two
  std::int32_t max_context_len = 0;  ///< maximum length of the longest sequence

  bool has_drafts() const { return tokens_each > 1; }
  /// Returns the number of tokens, padding included.
  std::int32_t num_tokens() const { return num_sequences * tokens_each; }
  /// Returns the name of the record, less than 2^63; it differs between different batches.
  std::uint64_t key() const {
    return static_cast<std::uint64_t>(num_sequences) << 40U | static_cast<std::uint64_t>(tokens_each) << 32U |
           static_cast<std::uint32_t>(max_context_len);
  }
  bool operator==(const DecodeBatch&) const = default;
};

struct DecodeLimits {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_drafts = 0;        ///< of a sequence
  std::int32_t max_draft_tokens = 0;  ///< maximum number of tokens of a step whose sequences have drafts
  std::int64_t max_model_len = 0;
};

class DecodeBatches {
 public:
  /// Steps with drafts and more tokens are not recorded. They take a GPU so long that a host has time to issue them.
  static constexpr std::int32_t kMaxDraftTokens = 128;

  /// Numbers of sequences: 1, 2, 4, 8, then multiples of 8 in steps of at most an eighth, and max_num_seqs. With
  /// drafts: powers of two and max_num_seqs, for at most max_draft_tokens and kMaxDraftTokens. Context sizes: 2k, 8k,
  /// 32k, ... up to max_model_len.
  explicit DecodeBatches(const DecodeLimits& limits);

  /// Returns the smallest batch that has room; nothing if none has room for the drafts. `num_sequences`: from 1 to
  /// max_num_seqs. `num_tokens`: of all of them. `max_query_len`: the most tokens of one. `context_len`: up to
  /// max_model_len.
  std::optional<DecodeBatch> around(std::int64_t num_sequences, std::int64_t num_tokens, std::int32_t max_query_len,
                                    std::int32_t context_len) const;

  /// Returns the maximum number of tokens of a sequence in a batch.
  std::int32_t max_query_len(const DecodeBatch& batch) const;

  /// Returns all batches; the longest contexts come first, and with each of them those with drafts.
  std::vector<DecodeBatch> all() const;

 private:
  DecodeLimits limits_;
  // All ascending.
  std::vector<std::int32_t> sequences_;
  std::vector<std::int32_t> sequences_with_drafts_;
  std::vector<std::int32_t> contexts_;
};

}  // namespace pagoda::execution
