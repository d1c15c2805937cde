#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/quantized.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Makes what kernels read of weights as a checkpoint has them. Thread-safe.
class WeightConverter {
 public:
  /// `device`: one that computes on the host.
  explicit WeightConverter(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// A copy of `tensor`, plain or quantised, as `dtype`. Errors: out_of_memory; bad_config when a value does not fit.
  Result<kernels::Buffer> convert(const WeightTensor& tensor, DType dtype) const;

  /// `matrix` quantised. Errors: out_of_memory; bad_file when a weight is not finite.
  Result<std::shared_ptr<const QuantizedWeights>> quantize(const kernels::WeightMatrix& matrix,
                                                           const kernels::QuantizedFormat& format) const;

  /// The quantised matrix `tensor`, which has a format, in the layout of kernels. Errors: out_of_memory; bad_file when
  /// a scale or a minimum is not finite, with the tensor's name.
  Result<std::shared_ptr<const QuantizedWeights>> pack(const WeightTensor& tensor) const;

 private:
  Result<std::shared_ptr<QuantizedWeights>> allocate(std::int64_t rows, std::int64_t columns,
                                                     const kernels::QuantizedFormat& format) const;
  Result<kernels::Buffer> dequantize(const WeightTensor& tensor) const;
  Status run(const std::function<Status(kernels::Stream&)>& issue) const;

  std::shared_ptr<kernels::Device> device_;
};

}  // namespace pagoda::weights
