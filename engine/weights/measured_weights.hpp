#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/loaded_weights.hpp"
#include "engine/weights/weight_source.hpp"

namespace pagoda::weights {

/// Counts the bytes of the weights that are taken from it and reads none of them. The weights that it returns have
/// types and shapes, but no data. A model that is built over it shows how many bytes it would take of a checkpoint
/// under a policy; it cannot run. Not thread-safe.
class MeasuredWeights final : public WeightSource {
 public:
  /// `stored` must outlive this.
  MeasuredWeights(const WeightSource& stored, WeightPolicy policy) : stored_(stored), policy_(policy) {}

  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return stored_.contains(name); }
  bool holds_derived(std::string_view module) const override { return stored_.holds_derived(module); }
  Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                   std::int64_t columns) const override;
  Result<LinearWeight> derived_linear(std::string_view module, const DerivedWeight& weight) const override;

  /// Returns the bytes of all weights once they are loaded. Weights that are used where they lie count as well.
  std::int64_t loaded_bytes() const;
  /// Returns the bytes of the weights that are copies in memory of their own (LoadedWeights::copied_bytes). Pages of
  /// the mapped file do not count.
  std::int64_t copied_bytes() const;

 private:
  struct Taken {
    std::int64_t bytes = 0;
    bool is_copy = false;
  };
  LinearWeight count_quantized(std::string_view module, std::int64_t rows, std::int64_t columns,
                               const kernels::QuantizedFormat& format, const std::int32_t* order = nullptr) const;

  const WeightSource& stored_;
  WeightPolicy policy_;
  mutable std::map<std::string, Taken, std::less<>> tensors_;  // by name
  mutable std::map<std::string, Taken, std::less<>> linears_;  // weights that are no plain tensors, by module or tensor
};

}  // namespace pagoda::weights
