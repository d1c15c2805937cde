#pragma once

#include <cstdint>
#include <memory>

#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// Rows of an embedding of tokens that a rank has.
struct VocabPart {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t vocab_size = 0;  ///< of all ranks
};

/// An embedding table. It gives the row of the table for each id. A table of tokens is a module that adapters can
/// change, and gives virtual tokens the embeddings of their prompt; a table of positions does neither.
class Embedding {
 public:
  Embedding() = default;
  /// Takes `weight` [vocab_size, width] of the loader's module, quantised if the source quantises it. Rows of the table
  /// are multiplied by `factor`, those of virtual tokens are not.
  Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width, float factor = 1.0F)
      : Embedding(loader, {.num_rows = vocab_size, .vocab_size = vocab_size}, width, factor) {}
  /// As above, for a rank that has a part of the rows. The result is the sum of what the ranks have.
  Embedding(const WeightLoader& loader, const VocabPart& part, std::int64_t width, float factor = 1.0F);
  /// Takes `weight` [first_row + num_positions, width], not quantised. Id 0 gives row `first_row`.
  static Embedding of_positions(const WeightLoader& loader, std::int64_t num_positions, std::int64_t width,
                                std::int64_t first_row);

  /// Writes the rows of `ids` to `out`. ids: [num_tokens]; out: [num_tokens, width].
  void operator()(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, false); }
  /// Adds the rows of `ids` to `out`. Call it for a table of positions only.
  void add(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, true); }

  /// Returns the number of elements of a row.
  std::int64_t width() const { return quantized_.data != nullptr ? quantized_.columns : table_.columns; }

 private:
  void issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const;
  void look_up(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const;
  void adapt(ForwardPass& pass, const BatchAdapters& adapters, const std::int32_t* ids, float* out) const;
  void write(ForwardPass& pass, const BatchPrompts& prompts, float* out) const;

  kernels::WeightMatrix table_;
  kernels::QuantizedMatrix quantized_;  // the table if its data is not null; otherwise the table is table_
  std::int64_t first_row_ = 0;
  std::int64_t whole_vocab_ = 0;  // 0 = the table is whole
  float factor_ = 1.0F;
  ModuleId module_ = kNoModule;
  std::shared_ptr<const void> memory_;  // owns a table that does not lie in the source
};

}  // namespace pagoda::layers
