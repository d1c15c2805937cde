#pragma once

/// Random adapters for the modules of a model, and weights into which an adapter is merged.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapters/adapter.hpp"
#include "engine/layers/adapter_modules.hpp"
#include "engine/weights/weight_source.hpp"

namespace pagoda::test {

inline adapters::AdapterMatrix matrix_of(std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
  adapters::AdapterMatrix matrix{.dtype = DType::f32, .rows = rows, .columns = columns, .data = {}};
  matrix.data.resize(values.size() * sizeof(float));
  std::memcpy(matrix.data.data(), values.data(), matrix.data.size());
  return matrix;
}

inline float element(const adapters::AdapterMatrix& matrix, std::int64_t row, std::int64_t column) {
  float value = 0.0F;
  std::memcpy(&value, matrix.data.data() + (row * matrix.columns + column) * std::int64_t{sizeof(float)},
              sizeof(value));
  return value;
}

/// Draws float32 adapters; all magnitudes of changes are near those of the weights.
class RandomAdapters {
 public:
  explicit RandomAdapters(std::uint32_t seed) : random_(seed) {}

  adapters::AdapterMatrix matrix(std::int64_t rows, std::int64_t columns, double spread, double mean = 0.0) {
    std::normal_distribution<float> values(static_cast<float>(mean), static_cast<float>(spread));
    std::vector<float> drawn(static_cast<std::size_t>(rows * columns));
    std::ranges::generate(drawn, [&] { return values(random_); });
    return matrix_of(rows, columns, drawn);
  }

  adapters::ModuleChange change(const layers::AdapterModule& module, std::int64_t rank, bool is_dora = false) {
    const bool is_table = module.kind == layers::AdapterModule::Kind::embedding;
    const double in = is_table ? 1.0 : static_cast<double>(module.in_features);
    adapters::LoraChange lora{
        .a = matrix(rank, module.in_features, 0.5 / std::sqrt(in)),
        .b = matrix(module.out_features, rank, 0.5 / std::sqrt(static_cast<double>(rank))),
        .scale = 0.7F,
        .magnitude = std::nullopt,
    };
    if (is_dora) lora.magnitude = matrix(module.out_features, 1, 0.2, 1.0);
    return {.module = module.name, .lora = std::move(lora), .weight = std::nullopt, .bias = std::nullopt};
  }

  /// Returns a prompt adapter. Its values are near those of random models.
  adapters::Adapter prompt(const layers::AdapterModules& modules, adapters::VirtualTokens::Kind kind,
                           std::int64_t num_tokens) {
    const bool is_prefix = kind == adapters::VirtualTokens::Kind::prefix;
    const layers::ModelKv& kv = modules.kv();
    const std::int64_t width = is_prefix ? kv.num_layers * 2 * kv.width() : modules.embedding_width();
    adapters::Adapter adapter;
    adapter.prompt = {kind, matrix(num_tokens, width, 1.0), is_prefix ? kv.num_heads : 0};
    return adapter;
  }

  /// Returns an adapter that changes each module that `chosen` accepts.
  adapters::Adapter adapter(
      const layers::AdapterModules& modules, std::int64_t rank, bool is_dora = false,
      const std::function<bool(const layers::AdapterModule&)>& chosen = [](const auto&) { return true; }) {
    adapters::Adapter adapter;
    for (const layers::AdapterModule& module : modules.all()) {
      if (chosen(module)) adapter.changes.push_back(change(module, rank, is_dora));
    }
    return adapter;
  }

 private:
  std::mt19937 random_;
};

/// The weights of `base` with an adapter merged into them, computed in double precision.
class MergedWeights final : public weights::WeightSource {
 public:
  /// `transposed`: whether the weights of the changed linear layers are stored as [in, out].
  MergedWeights(const weights::WeightSource& base, const adapters::Adapter& adapter, bool transposed)
      : base_(base), transposed_(transposed) {
    for (const auto& change : adapter.changes) changes_.emplace(change.module, change);
  }

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    return merged(module_of(name), name, shape);
  }
  bool contains(std::string_view name) const override { return base_.contains(name); }
  Result<weights::LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                            std::int64_t columns) const override {
    const auto weight = merged(std::string(module), tensor, {rows, columns});
    return weights::LinearWeight{.plain = {weight->data, weight->dtype, rows, columns}};
  }

 private:
  static std::string module_of(std::string_view tensor) { return std::string(tensor.substr(0, tensor.rfind('.'))); }

  Result<weights::WeightTensor> merged(const std::string& module, std::string_view name,
                                       const std::vector<std::int64_t>& shape) const {
    auto tensor = base_.tensor(name, shape);
    const auto found = changes_.find(module);
    if (found == changes_.end()) return tensor;
    const auto* from = static_cast<const float*>(tensor->data);
    auto values = std::make_unique<std::vector<float>>(from, from + tensor->elements());
    const adapters::ModuleChange& change = found->second;
    if (name.ends_with(".bias")) {
      if (!change.bias) return tensor;
      for (std::int64_t n = 0; n < shape[0]; ++n) (*values)[static_cast<std::size_t>(n)] = element(*change.bias, n, 0);
    } else if (change.weight) {
      for (std::int64_t i = 0; i < tensor->elements(); ++i) {
        (*values)[static_cast<std::size_t>(i)] = element(*change.weight, i / shape[1], i % shape[1]);
      }
    } else if (change.lora) {
      merge(*change.lora, shape, module, *values);
    }
    tensor->data = values->data();
    memory_.push_back(std::move(values));
    return tensor;
  }

  void merge(const adapters::LoraChange& lora, const std::vector<std::int64_t>& shape, const std::string& module,
             std::vector<float>& values) const {
    const bool is_table = module.ends_with("embed_tokens") || module.ends_with("wte");
    const bool across = is_table || (transposed_ && module != "lm_head");
    const std::int64_t out = across ? shape[1] : shape[0];
    const std::int64_t in = across ? shape[0] : shape[1];
    for (std::int64_t n = 0; n < out; ++n) {
      std::vector<double> row(static_cast<std::size_t>(in));
      double squares = 0.0;
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = 0.0;
        for (std::int64_t r = 0; r < lora.rank(); ++r) sum += double{element(lora.b, n, r)} * element(lora.a, r, k);
        const double value = values[static_cast<std::size_t>(across ? k * out + n : n * in + k)] + lora.scale * sum;
        row[static_cast<std::size_t>(k)] = value;
        squares += value * value;
      }
      const double factor = lora.magnitude ? element(*lora.magnitude, n, 0) / std::sqrt(squares) : 1.0;
      for (std::int64_t k = 0; k < in; ++k) {
        values[static_cast<std::size_t>(across ? k * out + n : n * in + k)] =
            static_cast<float>(factor * row[static_cast<std::size_t>(k)]);
      }
    }
  }

  const weights::WeightSource& base_;
  bool transposed_;
  std::map<std::string, adapters::ModuleChange> changes_;
  mutable std::vector<std::unique_ptr<std::vector<float>>> memory_;
};

}  // namespace pagoda::test
