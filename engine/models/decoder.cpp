#include "engine/models/decoder.hpp"

#include <ranges>
#include <string>
#include <utility>

#include "engine/models/rope_config.hpp"

namespace pagoda::models {

using namespace layers;

namespace {

/// Returns an error (internal) if the rows of a list are not in order, or not among those of the batch.
template <class List>
Status check_order(const List& list, std::int64_t num_rows) {
  std::int64_t end = 0;
  for (const auto& rows : list) {
    if (rows.first_row < end || rows.num_rows < 0 || rows.first_row + rows.num_rows > num_rows) {
      return fail(ErrorCode::internal, "adapters: rows " + std::to_string(rows.first_row) + " to " +
                                           std::to_string(rows.first_row + rows.num_rows) +
                                           " are not in order among the " + std::to_string(num_rows) +
                                           " rows of the batch");
    }
    end = rows.first_row + rows.num_rows;
  }
  return {};
}

}  // namespace

ModelSpec spec_of_decoder(const DecoderConfig& config) {
  const PositionShape& positions = config.positions.front();
  ModelSpec spec;
  spec.decoder = config;
  spec.vocab_size = config.vocab_size;
  spec.max_position_embeddings = config.max_position_embeddings;
  spec.position_limit = positions.kind == PositionKind::rotary
                            ? position_limit(config.max_position_embeddings, positions.rotary.scaling)
                            : config.max_position_embeddings;
  spec.tie_word_embeddings = config.tie_word_embeddings;
  const AttentionShape& attention = config.attention;
  spec.kv = config.kv_grouping().groups;
  spec.facts = {{"hidden_size", config.hidden_size},
                {"intermediate_size", config.intermediate_size},
                {"num_layers", config.num_layers()},
                {"num_heads", attention.num_heads},
                {"num_kv_heads", attention.num_kv_heads},
                {"head_dim", attention.head_dim},
                {"positions", std::string(to_string(positions.kind))},
                {"sliding_window", std::int64_t{config.largest_window()}},
                {"layers_with_window", config.num_layers_with_window()}};
  return spec;
}

Decoder::Decoder(const DecoderConfig& config, ActivationShape activations, Head head)
    : place_(config.place),
      activation_shape_(std::move(activations)),
      position_shapes_(config.positions),
      head_(std::move(head)) {
  for (RankPlace place = config.place; auto rank : std::views::iota(0, place.num_ranks)) {
    place.rank = rank;
    vocab_parts_.push_back(range_of_rank(config.vocab_size, 1, place).size());
  }
}

void Decoder::connect(kernels::Communicator& ranks) {
  PAGODA_ASSERT(place_.num_ranks == ranks.num_ranks() && place_.num_stages == ranks.num_stages(),
                "the model is a part for so many ranks");
  ranks_ = &ranks;
}

ModelMemory Decoder::memory(const ModelLimits& limits, bool narrow_rows) const {
  ModelMemory memory{.activation_bytes = Activations::bytes(activation_shape_, limits, narrow_rows)};
  for (const auto& shape : position_shapes_)
    memory.position_bytes += PositionTables::bytes(shape, limits.max_model_len);
  return memory;
}

Status Decoder::allocate(std::shared_ptr<kernels::Device> device, const ModelLimits& limits) {
  PAGODA_ASSERT(device_ == nullptr, "a model is allocated once");
  device_ = std::move(device);
  auto activations = Activations::create(*device_, activation_shape_, limits);
  if (!activations) return fail(std::move(activations.error()));
  for (const auto& shape : position_shapes_) {
    auto tables = PositionTables::create(*device_, shape, limits.max_model_len);
    if (!tables) return fail(std::move(tables.error()));
    positions_.push_back(std::move(*tables));
  }
  activations_ = std::move(*activations);
  return {};
}

Status Decoder::run(kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache) {
  if (auto status = activations_.check_fits(batch); !status) return status;
  if (auto status = check(batch.adapters, batch.num_tokens); !status) return status;
  if (auto status = check(batch.prompts, batch.num_tokens); !status) return status;
  ForwardPass pass(device_->ops(), stream, batch, cache, ranks_);
  float* const residual = activations_.residual;
  const std::int64_t count = batch.num_tokens * activation_shape_.hidden_size;
  if (place_.is_in_first_stage()) {
    embed(pass);
  } else {
    pass.receive(count, residual);
  }
  run_layers(pass);
  if (place_.is_in_last_stage()) {
    hidden_ = finish(pass);
  } else {
    pass.send(count, residual);
  }
  return pass.status();
}

Status Decoder::logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits,
                       const BatchAdapters* adapters) {
  if (num_rows == 0) return {};
  if (auto status = activations_.check_logit_rows(num_rows); !status) return status;
  if (auto status = check(adapters, num_rows); !status) return status;
  PAGODA_ASSERT(place_.is_in_last_stage(), "the last stage has the head");
  const ForwardBatch only_adapters{.adapters = adapters};
  const KvCache no_cache;
  ForwardPass pass(device_->ops(), stream, only_adapters, no_cache, ranks_);
  gather(pass, rows, num_rows, activations_.logit_rows);
  pass.gather_from_ranks(num_rows, vocab_parts_, logits, [&](float* part) {
    head_.linear(pass, activations_.logit_rows, num_rows, part);
    if (head_.factor == 1.0 && head_.softcap == 0.0) return;
    pass.run(&kernels::Ops::scale, {.x = part,
                                    .num_rows = num_rows,
                                    .width = head_.linear.out_features(),
                                    .factor = static_cast<float>(head_.factor),
                                    .softcap = static_cast<float>(head_.softcap)});
  });
  return pass.status();
}

Status Decoder::hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) {
  if (num_rows == 0) return {};
  const ForwardBatch no_batch;
  const KvCache no_cache;
  ForwardPass pass(device_->ops(), stream, no_batch, no_cache);
  gather(pass, rows, num_rows, hidden);
  return pass.status();
}

Status Decoder::check(const BatchAdapters* adapters, std::int64_t num_rows) const {
  if (adapters == nullptr) return {};
  if (auto status = check_order(*adapters, num_rows); !status) return status;
  for (const AdapterRows& rows : *adapters) {
    if (rows.adapter == nullptr || rows.adapter->modules != head_.modules.get()) {
      return fail(ErrorCode::internal, "adapters: an adapter is not bound to this model");
    }
  }
  return {};
}

Status Decoder::check(const BatchPrompts* prompts, std::int64_t num_rows) const {
  if (prompts == nullptr) return {};
  if (auto status = check_order(*prompts, num_rows); !status) return status;
  for (const PromptRows& rows : *prompts) {
    if (rows.prompt == nullptr || rows.prompt->modules != head_.modules.get()) {
      return fail(ErrorCode::internal, "adapters: a prompt is not bound to this model");
    }
    if (rows.first_token < 0 || rows.first_token + rows.num_rows > rows.prompt->num_tokens) {
      return fail(ErrorCode::internal, "adapters: a row is behind the virtual tokens of its prompt");
    }
  }
  return {};
}

void Decoder::gather(ForwardPass& pass, const std::int32_t* rows, std::int32_t num_rows, float* out) const {
  PAGODA_ASSERT(hidden_ != nullptr, "rows are of a run");
  pass.run(&kernels::Ops::gather_rows,
           {.x = hidden_, .rows = rows, .num_rows = num_rows, .width = hidden_width(), .out = out});
}

}  // namespace pagoda::models
