#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pagoda::execution {

/// A size that decode steps are rounded up to on a device that records steps and replays the records. A small number of
/// sizes needs a small number of records.
struct DecodeBatch {
  std::int32_t num_tokens = 0;       ///< number of tokens, padding included
  std::int32_t max_query_len = 1;    ///< maximum number of tokens of a sequence: 1, or those with drafts
  std::int32_t max_context_len = 0;  ///< maximum length of the longest sequence

  bool has_drafts() const { return max_query_len > 1; }
  /// Returns the name of the record; it differs between different batches of one engine.
  std::uint64_t key() const {
    return static_cast<std::uint64_t>(num_tokens) << 33U | static_cast<std::uint64_t>(has_drafts()) << 32U |
           static_cast<std::uint32_t>(max_context_len);
  }
  bool operator==(const DecodeBatch&) const = default;
};

struct DecodeLimits {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_drafts = 0;  ///< of a sequence
  /// Maximum number of tokens of a step whose sequences have drafts.
  std::int32_t max_draft_tokens = 0;
  std::int64_t max_model_len = 0;
};

class DecodeBatches {
 public:
  /// Steps with more tokens are not recorded if they have drafts: a GPU takes longer to run such a step than a host to
  /// issue it.
  static constexpr std::int32_t kMaxDraftTokens = 256;

  /// Token sizes: 1, 2, 4, 8, then multiples of 8 in steps of at most an eighth, up to max_num_seqs; with drafts from 2
  /// on, up to max_draft_tokens and kMaxDraftTokens. Context sizes: 2k, 8k, 32k, ... up to max_model_len.
  explicit DecodeBatches(const DecodeLimits& limits);

  /// Returns the smallest batch that has room; nothing if none has room for the drafts. `num_tokens`: at least 1, and
  /// at most max_num_seqs without drafts. `max_query_len`: up to 1 + max_drafts. `context_len`: up to max_model_len.
  std::optional<DecodeBatch> around(std::int64_t num_tokens, std::int32_t max_query_len,
                                    std::int32_t context_len) const;

  /// Returns all batches, the largest first.
  std::vector<DecodeBatch> all() const;

 private:
  std::int32_t max_query_len_;
  // All ascending.
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> tokens_with_drafts_;
  std::vector<std::int32_t> contexts_;
};

}  // namespace pagoda::execution
