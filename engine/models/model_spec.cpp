#include "engine/models/model_spec.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::models {
namespace {

Status check_limits(const ModelSpec& spec, const layers::ModelLimits& limits) {
  const auto bad = [](const char* key, const std::string& reason) {
    return fail(ErrorCode::bad_config, std::string(key) + ": " + reason, key);
  };
  if (limits.max_tokens < 1) return bad("max_tokens", "must be at least 1");
  if (limits.max_logit_rows < 1) return bad("max_logit_rows", "must be at least 1");
  if (limits.max_model_len < 1 || limits.max_model_len > spec.position_limit) {
    return bad("max_model_len", std::to_string(limits.max_model_len) + " is not between 1 and the model's " +
                                    std::to_string(spec.position_limit) + " positions");
  }
  return {};
}

}  // namespace

KvLayout ModelSpec::kv_layout(std::int32_t block_size, DType kv_dtype) const {
  KvLayout layout{.groups = {}};
  for (const auto& [attention, num_layers] : kv) {
    layout.groups.push_back({.kind = attention.window > 0 ? KvKind::window : KvKind::full,
                             .block_size = block_size,
                             .window = attention.window,
                             .num_layers = static_cast<std::int32_t>(num_layers),
                             .layer_bytes = attention.kv_bytes(block_size, kv_dtype)});
  }
  return layout;
}

ModelSpec ModelSpec::of_rank(const RankPlace& rank) const {
  ModelSpec part = *this;
  part.place = rank;
  part.kv = decoder.of_rank(rank).kv_grouping().groups;
  return part;
}

std::int64_t ModelSpec::largest_exchange(const layers::ModelLimits& limits) const {
  if (place.num_ranks == 1) return 0;
  const std::int64_t vocab_of_rank = (vocab_size + place.num_ranks - 1) / place.num_ranks;
  return std::max(limits.max_tokens * decoder.hidden_size, limits.max_logit_rows * vocab_of_rank);
}

Result<std::unique_ptr<Model>> create_model(const ModelSpec& spec, const weights::WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device,
                                            const layers::ModelLimits& limits) {
  if (auto status = check_limits(spec, limits); !status) return fail(std::move(status.error()));
  auto model = spec.build(weights);
  if (!model) return model;
  if (auto status = (*model)->allocate(std::move(device), limits); !status) return fail(std::move(status.error()));
  return model;
}

}  // namespace pagoda::models
