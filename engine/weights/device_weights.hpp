#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/weights/loaded_weights.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"

namespace pagoda::weights {

/// Weights in the memory of a device that does not share the host's memory. A weight is uploaded when it is first
/// requested, one after another in the order of the requests, and kept, so that another model over the same source
/// shares it. A head tied to the embedding uses the embedding's tensor, unless the policy quantises the head.
/// Thread-safe.
class DeviceWeights final : public WeightSource {
 public:
  /// Receives the share of the weights that is uploaded, 0 to 1.
  using Progress = std::function<void(double)>;

  /// `host` must outlive this. `expected_bytes`: bytes of all weights (MeasuredWeights), for which one piece of memory
  /// is allocated.
  DeviceWeights(const LoadedWeights& host, std::shared_ptr<kernels::Device> device, std::int64_t expected_bytes,
                Progress progress);
  ~DeviceWeights() override;

  /// More errors: out_of_memory.
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return host_.contains(name); }
  bool holds_derived(std::string_view module) const override { return host_.holds_derived(module); }
  Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                   std::int64_t columns) const override;
  Result<LinearWeight> derived_linear(std::string_view module, const DerivedWeight& weight) const override;

  /// Waits until all requested weights are uploaded, and frees what only the upload needs. Call after a model has taken
  /// its weights and before it runs.
  void finish() const;

  std::int64_t uploaded_bytes() const;

 private:
  class Uploader;
  /// Uploads `from` [bytes], which is host memory and is read before upload returns. The copy is aligned to 256 bytes.
  Result<const std::byte*> upload(const void* from, std::int64_t bytes) const;
  Result<LinearWeight> upload_quantized(std::string_view module, const QuantizedWeights& weights) const;
  Result<LinearWeight> upload_plain(std::string_view module, const kernels::WeightMatrix& matrix) const;

  const LoadedWeights& host_;
  std::shared_ptr<kernels::Device> device_;
  std::int64_t expected_bytes_;
  Progress progress_;

  mutable std::mutex mutex_;
  mutable std::vector<kernels::Buffer> memory_;
  mutable std::int64_t used_of_last_ = 0;  // bytes used of memory_.back()
  mutable std::int64_t uploaded_bytes_ = 0;
  mutable std::unique_ptr<Uploader> uploader_;  // set while weights are being loaded
  mutable std::map<std::string, WeightTensor, std::less<>> tensors_;
  // Quantised, scaled or derived; by module or tensor.
  mutable std::map<std::string, LinearWeight, std::less<>> linears_;
};

}  // namespace pagoda::weights
