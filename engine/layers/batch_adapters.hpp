#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/layers/adapter_modules.hpp"
#include "kernels/ops.hpp"

namespace pagoda::layers {

/// The changes of an adapter to one module of a model, in the device's memory.
struct ModuleWeights {
  const void* a = nullptr;  ///< as LoraItem has them
  const void* b = nullptr;
  DType dtype = DType::f32;
  std::int64_t rank = 0;  ///< 0 = no low-rank change
  float scale = 1.0F;
  const float* factors = nullptr;     ///< [out_features] of DoRA, or null
  const float* bias = nullptr;        ///< [out_features], the adapter's bias minus the base's, or null
  kernels::WeightMatrix weight = {};  ///< replaces the weight of an embedding or of the head if its data is not null

  /// Returns the op's item for some rows, if the weight is not replaced.
  kernels::LoraItem item(std::int64_t first_row, std::int64_t num_rows, std::int64_t first_column,
                         std::int64_t out_features) const {
    return {.first_row = first_row,
            .num_rows = num_rows,
            .first_column = first_column,
            .out_features = out_features,
            .a = a,
            .b = b,
            .dtype = dtype,
            .rank = rank,
            .scale = scale,
            .factors = factors,
            .bias = bias};
  }
};

/// An adapter that is bound to the modules of a model. Does not own its memory (adapters::BoundAdapter does).
struct AdapterWeights {
  const AdapterModules* modules = nullptr;  ///< of the model
  std::vector<std::int32_t> changes;        ///< by ModuleId: index of `weights`, or -1
  std::vector<ModuleWeights> weights;
  /// Memory for products of the base's weights that factors change: [kWorkRows, row_width] of any module.
  float* work = nullptr;
  static constexpr std::int64_t kWorkRows = 64;

  /// Returns what the adapter changes in a module; null = nothing.
  const ModuleWeights* change_of(ModuleId module) const {
    const std::int32_t index = module == kNoModule ? -1 : changes[static_cast<std::size_t>(module)];
    return index < 0 ? nullptr : &weights[static_cast<std::size_t>(index)];
  }
};

/// Rows of a batch that follow one another and have the same adapter.
struct AdapterRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  const AdapterWeights* adapter = nullptr;
};

/// The rows of a batch, or of a call of Model::logits, that have an adapter, in the order of the rows. Neighbouring
/// rows of one adapter are best in one entry. Rows in no entry are those of the base model.
using BatchAdapters = std::vector<AdapterRows>;

}  // namespace pagoda::layers
