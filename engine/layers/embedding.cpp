#include "engine/layers/embedding.hpp"

namespace pagoda::layers {

Embedding::Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width)
    : table_(loader.matrix("weight", vocab_size, width)) {}

Embedding Embedding::without_first(std::int64_t rows) const {
  Embedding shorter = *this;
  const auto row_bytes = table_.columns * static_cast<std::int64_t>(size_of(table_.dtype));
  shorter.table_.rows -= rows;
  if (table_.data != nullptr) shorter.table_.data = static_cast<const std::byte*>(table_.data) + rows * row_bytes;
  return shorter;
}

void Embedding::issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const {
  pass.run(&kernels::Ops::embedding,
           {.token_ids = ids, .num_tokens = pass.num_tokens(), .table = table_, .out = out, .accumulate = accumulate});
}

}  // namespace pagoda::layers
