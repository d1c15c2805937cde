#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A linear layer whose weight is written quantised: the tensor NAME.weight of its model.
struct WrittenModule {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int bits = 4;  ///< 4 or 8
};

/// Returns the number of bits of most weights; 4 where there are no modules.
int most_common_bits(std::span<const WrittenModule> modules);

/// Quantised weights: scale * (q - zero), or scale * q + min where there are minimums.
struct WrittenWeights {
  std::span<const std::uint8_t> q;      ///< [rows, columns], an integer from 0 to 2^bits - 1 in each byte
  std::span<const float> scales;        ///< [rows, columns / group_size], exact in the written type
  std::span<const std::uint8_t> zeros;  ///< [rows, columns / group_size], integers, 2^(bits - 1) in a symmetric format
  std::span<const float> mins;          ///< [rows, columns / group_size], exact in the written type
};

/// Writes the files of a model with quantised linear layers. All else is unchanged. The files are valid after finish().
class QuantizedModelWriter {
 public:
  virtual ~QuantizedModelWriter() = default;

  /// Errors: io_failed.
  virtual Status write(const WrittenModule& module, const WrittenWeights& weights) = 0;
  /// Call after all modules are written. Errors: io_failed.
  virtual Status finish() = 0;
  /// Returns the bytes of the files with weights, after finish().
  virtual std::int64_t written_bytes() const = 0;
};

}  // namespace pagoda::io
