#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/weights/weight_source.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Weights of linear layers, by module name.
using LinearWeights = std::map<std::string, weights::LinearWeight, std::less<>>;

/// Replaces the weights of some linear layers of another source with plain weights. Not thread-safe.
class ReplacedWeights final : public weights::WeightSource {
 public:
  /// `others` must outlive this.
  ReplacedWeights(const weights::WeightSource& others, LinearWeights linears)
      : others_(others), linears_(std::move(linears)) {}

  /// Returns how many of the replaced layers a model has asked for.
  std::size_t num_taken() const { return taken_.size(); }

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    return others_.tensor(name, shape);
  }
  bool contains(std::string_view name) const override { return others_.contains(name); }
  bool holds_derived(std::string_view module) const override { return others_.holds_derived(module); }

  Result<weights::LinearWeight> linear(std::string_view module, std::int64_t rows,
                                       std::int64_t columns) const override {
    const auto* replaced = find(module, rows, columns);
    return replaced != nullptr ? *replaced : others_.linear(module, rows, columns);
  }
  Result<weights::LinearWeight> embedding(std::string_view module, std::int64_t rows,
                                          std::int64_t columns) const override {
    return others_.embedding(module, rows, columns);
  }
  Result<weights::LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                            std::int64_t columns) const override {
    return others_.tied_linear(module, tensor, rows, columns);
  }
  Result<weights::LinearWeight> derived_linear(std::string_view module,
                                               const weights::DerivedWeight& weight) const override {
    const auto* replaced = find(module, weight.rows, weight.columns);
    return replaced != nullptr ? *replaced : others_.derived_linear(module, weight);
  }

 private:
  const weights::LinearWeight* find(std::string_view module, std::int64_t rows, std::int64_t columns) const {
    const auto found = linears_.find(module);
    if (found == linears_.end()) return nullptr;
    PAGODA_ASSERT(found->second.plain.rows == rows && found->second.plain.columns == columns, "the layer's shape");
    taken_.insert(found->first);
    return &found->second;
  }

  const weights::WeightSource& others_;
  LinearWeights linears_;
  mutable std::set<std::string> taken_;
};

}  // namespace pagoda
