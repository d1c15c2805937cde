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
  int bits = 4;  ///< or 8
};

/// The bits that most weights of the modules have; 4 where there are none.
int bits_of_most(std::span<const WrittenModule> modules);

/// A weight is scale * (q - zero), or scale * q + min where there are minimums.
struct WrittenWeights {
  std::span<const std::uint8_t> q;      ///< [rows, columns], one integer from 0 to 2^bits - 1 a byte
  std::span<const float> scales;        ///< [rows, columns / group_size], exact in the type that is written
  std::span<const std::uint8_t> zeros;  ///< likewise integers, which are 2^(bits - 1) in a symmetric format
  std::span<const float> mins;          ///< likewise, exact in the type that is written
};

/// Files of a model whose linear layers are quantised, all else as it was. They are a model once they are finished.
class QuantizedModelWriter {
 public:
  virtual ~QuantizedModelWriter() = default;

  /// Errors: io_failed.
  virtual Status write(const WrittenModule& module, const WrittenWeights& weights) = 0;
  /// Call once all modules are written. Errors: io_failed.
  virtual Status finish() = 0;
  /// Bytes of the files with weights, once they are finished.
  virtual std::int64_t written_bytes() const = 0;
};

}  // namespace pagoda::io
