#include "engine/layers/embedding.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pagoda::layers {

Embedding::Embedding(const WeightLoader& loader, const VocabPart& part, std::int64_t width, float factor)
    : first_row_(part.first_row),
      whole_vocab_(part.num_rows == part.vocab_size ? 0 : part.vocab_size),
      factor_(factor) {
  auto weight = loader.embedding(part.num_rows, width);
  table_ = weight.plain;
  module_ = loader.modules()->add({.name = std::string(loader.name()),
                                   .kind = AdapterModule::Kind::embedding,
                                   .in_features = part.vocab_size,
                                   .out_features = width,
                                   .row_width = width,
                                   .weight = weight});
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

void Embedding::look_up(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const {
  pass.run(&kernels::Ops::embedding, {.token_ids = ids,
                                      .num_tokens = pass.num_tokens(),
                                      .table = table_,
                                      .out = out,
                                      .accumulate = accumulate,
                                      .quantized = quantized_,
                                      .whole_vocab = whole_vocab_,
                                      .first_row = first_row_});
}

void Embedding::issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const {
  if (whole_vocab_ == 0) {
    look_up(pass, ids, out, accumulate);
  } else {
    pass.sum_over_ranks(pass.num_tokens() * width(), out, accumulate,
                        [&](float* part, bool adds) { look_up(pass, ids, part, adds); });
  }
  const bool has_tokens = module_ != kNoModule;
  if (has_tokens && pass.batch().adapters != nullptr) adapt(pass, *pass.batch().adapters, ids, out);
  if (factor_ != 1.0F) {
    pass.run(&kernels::Ops::scale, {.x = out, .num_rows = pass.num_tokens(), .width = width(), .factor = factor_});
  }
  if (has_tokens && pass.batch().prompts != nullptr) write(pass, *pass.batch().prompts, out);
}

void Embedding::write(ForwardPass& pass, const BatchPrompts& prompts, float* out) const {
  for (const PromptRows& rows : prompts) {
    if (rows.prompt->embeddings == nullptr) continue;
    pass.run(&kernels::Ops::copy, {.from = rows.prompt->embeddings + rows.first_token * width(),
                                   .to = out + rows.first_row * width(),
                                   .bytes = static_cast<std::size_t>(rows.num_rows * width()) * sizeof(float)});
  }
}

void Embedding::adapt(ForwardPass& pass, const BatchAdapters& adapters, const std::int32_t* ids, float* out) const {
  const std::int64_t num_rows = quantized_.data != nullptr ? quantized_.rows : table_.rows;
  const std::int64_t vocab_size = whole_vocab_ == 0 ? num_rows : whole_vocab_;
  std::vector<kernels::LoraItem> items;
  for (const AdapterRows& rows : adapters) {
    const ModuleWeights* change = rows.adapter->change_of(module_);
    if (change == nullptr) continue;
    if (change->weight.data == nullptr) {
      items.push_back(change->item(rows.first_row, rows.num_rows, 0, width()));
      continue;
    }
    pass.run(&kernels::Ops::embedding, {.token_ids = ids + rows.first_row,
                                        .num_tokens = rows.num_rows,
                                        .table = change->weight,
                                        .out = out + rows.first_row * width()});
  }
  if (items.empty()) return;
  pass.run(&kernels::Ops::lora, {.token_ids = ids,
                                 .num_tokens = pass.num_tokens(),
                                 .in = vocab_size,
                                 .items = items,
                                 .out = out,
                                 .out_stride = width()});
}

}  // namespace pagoda::layers
