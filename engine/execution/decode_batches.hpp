#pragma once

#include <cstdint>
#include <vector>

namespace pagoda::execution {

/// The sizes that decode steps are rounded up to where a device records them and replays the records: with few sizes
/// there are few records.
struct DecodeBatch {
  std::int32_t num_rows = 0;         ///< sequences, padding included
  std::int32_t max_context_len = 0;  ///< tokens that the longest of them may have

  /// Names the record; different for different batches.
  std::uint64_t key() const {
    return static_cast<std::uint64_t>(num_rows) << 32U | static_cast<std::uint32_t>(max_context_len);
  }
  bool operator==(const DecodeBatch&) const = default;
};

class DecodeBatches {
 public:
  /// Rows: 1, 2, 4, 8, then multiples of 8 in steps of at most an eighth, and max_num_seqs. Contexts: 2k, 8k, 32k, ...
  /// up to max_model_len.
  DecodeBatches(std::int32_t max_num_seqs, std::int64_t max_model_len);

  /// The smallest that holds as much. num_rows from 1 to max_num_seqs, context_len up to max_model_len.
  DecodeBatch around(std::int32_t num_rows, std::int32_t context_len) const;

  /// All of them, the largest first.
  std::vector<DecodeBatch> all() const;

 private:
  std::vector<std::int32_t> rows_;      // ascending
  std::vector<std::int32_t> contexts_;  // ascending
};

}  // namespace pagoda::execution
