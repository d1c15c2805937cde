#pragma once

#include <cstdint>
#include <memory>

#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// An embedding table. It gives the row of the table for each id. A table of tokens is a module that adapters can
/// change; a table of positions is not.
class Embedding {
 public:
  Embedding() = default;
  /// Takes `weight` [vocab_size, width] of the loader's module, quantised if the source quantises it.
  Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width);
  /// Takes `weight` [first_row + num_positions, width], not quantised. Id 0 gives row `first_row`.
  static Embedding of_positions(const WeightLoader& loader, std::int64_t num_positions, std::int64_t width,
                                std::int64_t first_row);

  /// Writes the rows of `ids` to `out`. ids: [num_tokens]; out: [num_tokens, width].
  void operator()(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, false); }
  /// Adds the rows of `ids` to `out`. Call it for a table of positions only.
  void add(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, true); }

 private:
  void issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const;
  void adapt(ForwardPass& pass, const BatchAdapters& adapters, const std::int32_t* ids, float* out) const;

  kernels::WeightMatrix table_;
  kernels::QuantizedMatrix quantized_;  // the table if its data is not null; otherwise the table is table_
  ModuleId module_ = kNoModule;
  std::shared_ptr<const void> memory_;  // owns a table that does not lie in the source
};

}  // namespace pagoda::layers
