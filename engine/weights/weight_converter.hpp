#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "engine/weights/kept_copies.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/quantized.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Makes what kernels read of weights as a checkpoint has them. What is made under a name, unlike any other's, is taken
/// from the kept copies where these have it. Thread-safe.
class WeightConverter {
 public:
  /// `device`: one that computes on the host. `kept`: null = all is in the device's memory.
  explicit WeightConverter(std::shared_ptr<kernels::Device> device, std::shared_ptr<KeptCopies> kept = nullptr)
      : device_(std::move(device)), kept_(std::move(kept)) {}

  /// A copy of `tensor`, plain or quantised, as `dtype`; one without a name is not kept. Errors: out_of_memory;
  /// bad_config when a value does not fit.
  Result<kernels::Buffer> convert(const WeightTensor& tensor, DType dtype, std::string_view kept_as = {}) const;

  /// A copy of bytes as they are. Errors: out_of_memory.
  Result<kernels::Buffer> copy(const void* from, std::size_t bytes, std::string_view kept_as) const;

  /// A matrix quantised; `plain` is asked for it if it must be made. Errors: those of `plain`; out_of_memory; bad_file
  /// when a weight is not finite.
  Result<std::shared_ptr<const QuantizedWeights>> quantize(
      std::string_view kept_as, std::int64_t rows, std::int64_t columns, const kernels::QuantizedFormat& format,
      const std::function<Result<kernels::WeightMatrix>()>& plain) const;

  /// The quantised matrix `tensor`, which has a format, in the layout of kernels. Errors: out_of_memory; bad_file when
  /// a scale or a minimum is not finite, with the tensor's name.
  Result<std::shared_ptr<const QuantizedWeights>> pack(const WeightTensor& tensor) const;

 private:
  struct QuantizedPlace {
    std::shared_ptr<QuantizedWeights> weights;
    bool is_made = false;
  };
  Result<KeptCopies::Place> take(std::string_view kept_as, std::size_t bytes) const;
  Result<QuantizedPlace> take(std::string_view kept_as, std::int64_t rows, std::int64_t columns,
                              const kernels::QuantizedFormat& format, std::size_t order_bytes = 0) const;
  Status copy_plain(const WeightTensor& tensor, DType dtype, void* to) const;
  Status dequantize(const WeightTensor& tensor, float* to) const;
  Status run(const std::function<Status(kernels::Stream&)>& issue) const;

  std::shared_ptr<kernels::Device> device_;
  std::shared_ptr<KeptCopies> kept_;
};

}  // namespace pagoda::weights
