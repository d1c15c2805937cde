#pragma once

#include <cstdint>
#include <vector>

namespace pagoda::execution {

/// A size that decode steps are rounded up to on a device that records steps and replays the records. A small number of
/// sizes needs a small number of records.
struct DecodeBatch {
  std::int32_t num_rows = 0;         ///< number of sequences, padding included
  std::int32_t max_context_len = 0;  ///< maximum number of tokens of the longest sequence

  /// Returns the name of the record; it differs between different batches.
  std::uint64_t key() const {
    return static_cast<std::uint64_t>(num_rows) << 32U | static_cast<std::uint32_t>(max_context_len);
  }
  bool operator==(const DecodeBatch&) const = default;
};

class DecodeBatches {
 public:
  /// Row sizes: 1, 2, 4, 8, then multiples of 8 in steps of at most an eighth, and max_num_seqs. Context sizes: 2k, 8k,
  /// 32k, ... up to max_model_len.
  DecodeBatches(std::int32_t max_num_seqs, std::int64_t max_model_len);

  /// Returns the smallest batch that has room. num_rows is from 1 to max_num_seqs, context_len up to max_model_len.
  DecodeBatch around(std::int32_t num_rows, std::int32_t context_len) const;

  /// Returns all batches, the largest first.
  std::vector<DecodeBatch> all() const;

 private:
  std::vector<std::int32_t> rows_;      // ascending
  std::vector<std::int32_t> contexts_;  // ascending
};

}  // namespace pagoda::execution
