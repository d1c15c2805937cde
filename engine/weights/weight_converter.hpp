#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "engine/weights/kept_copies.hpp"
#include "engine/weights/weight_memory.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/quantized.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Converts weights of a checkpoint into the forms that kernels read. A result with a name, which must be unique, is
/// taken from the kept copies if they hold it. Thread-safe.
class WeightConverter {
 public:
  /// `device` must compute on the host. `kept`: null = all results lie in the device's memory.
  explicit WeightConverter(std::shared_ptr<kernels::Device> device, std::shared_ptr<KeptCopies> kept = nullptr)
      : device_(std::move(device)), kept_(std::move(kept)), memory_(std::make_unique<WeightMemory>(device_)) {}

  /// Returns a copy of `tensor`, plain or quantised, as `dtype`. A copy without a name is not kept. Errors:
  /// out_of_memory; bad_config when a value does not fit.
  Result<kernels::Buffer> convert(const WeightTensor& tensor, DType dtype, std::string_view kept_as = {}) const;

  /// Returns a copy of the bytes as they are. Errors: out_of_memory.
  Result<kernels::Buffer> copy(const void* from, std::size_t bytes, std::string_view kept_as) const;
  /// Returns memory that `gather` has filled. Errors: out_of_memory.
  Result<kernels::Buffer> gather(const std::function<void(std::byte* to)>& gather, std::size_t bytes,
                                 std::string_view kept_as) const;

  /// Returns the matrix `tensor`, plain or quantised, in another format. Errors: out_of_memory; bad_file when a weight
  /// is not finite.
  Result<std::shared_ptr<const QuantizedWeights>> quantize(std::string_view kept_as, const WeightTensor& tensor,
                                                           const kernels::QuantizedFormat& format) const;

  /// Returns the quantised matrix `tensor`, which must have a format, in the layout of kernels. `format` is the
  /// tensor's format, possibly with more bits. Errors: out_of_memory; bad_file, which names the tensor, when a scale or
  /// a minimum is not finite.
  Result<std::shared_ptr<const QuantizedWeights>> pack(const WeightTensor& tensor,
                                                       const kernels::QuantizedFormat& format) const;

 private:
  struct QuantizedCopy {
    std::shared_ptr<QuantizedWeights> weights;
    bool is_filled = false;
  };
  Result<KeptCopies::CopyMemory> take(std::string_view kept_as, std::size_t bytes, CopyKind kind) const;
  Result<QuantizedCopy> take(std::string_view kept_as, std::int64_t rows, std::int64_t columns,
                             const kernels::QuantizedFormat& format, std::size_t order_bytes = 0) const;
  Status copy_plain(kernels::Stream& stream, const WeightTensor& tensor, DType dtype, void* to) const;
  /// Dequantises rows to `to` [num_rows, columns].
  Status dequantize(kernels::Stream& stream, const WeightTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                    float* to) const;
  /// Calls `use` with the rows of a quantised matrix in float32, some whole panels at a time, so that there is never a
  /// copy of all rows. `rows` is invalid after `use` has returned.
  Status dequantize_in_pieces(
      kernels::Stream& stream, const WeightTensor& tensor,
      const std::function<Status(std::int64_t first_row, const kernels::WeightMatrix& rows)>& use) const;
  Status run(const std::function<Status(kernels::Stream&)>& issue) const;

  std::shared_ptr<kernels::Device> device_;
  std::shared_ptr<KeptCopies> kept_;
  std::unique_ptr<WeightMemory> memory_;  // for copies with a name, which live equally long
};

}  // namespace pagoda::weights
