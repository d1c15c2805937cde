#include "engine/layers/embedding.hpp"

#include <utility>

namespace pagoda::layers {

Embedding::Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width) {
  auto weight = loader.embedding(vocab_size, width);
  table_ = weight.plain;
  if (weight.quantized == nullptr) return;
  quantized_ = weight.quantized->matrix;
  memory_ = std::move(weight.quantized);
}

Embedding Embedding::of_positions(const WeightLoader& loader, std::int64_t num_positions, std::int64_t width,
                                  std::int64_t first_row) {
  Embedding positions;
  auto& table = positions.table_;
  table = loader.matrix("weight", first_row + num_positions, width);
  const auto row_bytes = table.columns * static_cast<std::int64_t>(size_of(table.dtype));
  table.rows -= first_row;
  if (table.data != nullptr) table.data = static_cast<const std::byte*>(table.data) + first_row * row_bytes;
  return positions;
}

void Embedding::issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const {
  pass.run(&kernels::Ops::embedding, {.token_ids = ids,
                                      .num_tokens = pass.num_tokens(),
                                      .table = table_,
                                      .out = out,
                                      .accumulate = accumulate,
                                      .quantized = quantized_});
}

}  // namespace pagoda::layers
