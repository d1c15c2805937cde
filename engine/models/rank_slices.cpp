#include "engine/models/rank_slices.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "engine/models/decoder_config.hpp"

namespace pagoda::models {
namespace {

using weights::ModuleSlice;
using weights::Range;
using Axis = ModuleSlice::Axis;

/// The role of a linear layer or an embedding in a decoder.
enum class Role : std::uint8_t {
  queries,
  keys_or_values,
  packed_qkv,  ///< outputs: queries, keys, values
  attention_output,
  gate_or_up,
  packed_gate_up,  ///< outputs: gate, values
  down,
  vocabulary,  ///< the embedding of tokens, and the head
};

struct RoleOfModule {
  std::string_view suffix;  ///< last names of the module
  Role role;
  bool is_stored_transposed = false;
};

constexpr std::string_view kHead = "lm_head";

/// Modules whose names are not here are whole on every rank: norms, position embeddings, projections of embeddings.
constexpr std::array kRoles{
    RoleOfModule{"q_proj", Role::queries},
    RoleOfModule{"k_proj", Role::keys_or_values},
    RoleOfModule{"v_proj", Role::keys_or_values},
    RoleOfModule{"qkv_proj", Role::packed_qkv},
    RoleOfModule{"W_pack", Role::packed_qkv},
    RoleOfModule{"c_attn", Role::packed_qkv, true},
    RoleOfModule{"o_proj", Role::attention_output},
    RoleOfModule{"out_proj", Role::attention_output},
    RoleOfModule{"attn.c_proj", Role::attention_output, true},
    RoleOfModule{"gate_proj", Role::gate_or_up},
    RoleOfModule{"up_proj", Role::gate_or_up},
    RoleOfModule{"fc1", Role::gate_or_up},
    RoleOfModule{"c_fc", Role::gate_or_up, true},
    RoleOfModule{"gate_up_proj", Role::packed_gate_up},
    RoleOfModule{"down_proj", Role::down},
    RoleOfModule{"fc2", Role::down},
    RoleOfModule{"mlp.c_proj", Role::down, true},
    RoleOfModule{"embed_tokens", Role::vocabulary},
    RoleOfModule{"wte", Role::vocabulary},
    RoleOfModule{kHead, Role::vocabulary},
};

/// Returns null for a module that is whole on every rank.
const RoleOfModule* role_of(std::string_view module) {
  const auto is_its = [&](const RoleOfModule& known) {
    if (!module.ends_with(known.suffix)) return false;
    const std::size_t before = module.size() - known.suffix.size();
    return before == 0 || module[before - 1] == '.';
  };
  const auto* const found = std::ranges::find_if(kRoles, is_its);
  return found == kRoles.end() ? nullptr : found;
}

Range times(const Range& range, std::int64_t factor) {
  return {range.begin * factor, range.end * factor};
}

Range behind(const Range& range, std::int64_t offset) {
  return {range.begin + offset, range.end + offset};
}

}  // namespace

Range range_of_rank(std::int64_t size, std::int64_t unit, const RankPlace& place) {
  const std::int64_t num_units = size / unit;
  const auto border = [&](std::int64_t rank) {
    return rank == place.num_ranks ? size : (rank * num_units + place.num_ranks - 1) / place.num_ranks * unit;
  };
  return {border(place.rank), border(place.rank + 1)};
}

Range kv_heads_of_rank(std::int64_t num_kv_heads, const RankPlace& place) {
  if (num_kv_heads >= place.num_ranks) return range_of_rank(num_kv_heads, 1, place);
  const std::int64_t head = place.rank * num_kv_heads / place.num_ranks;
  return {head, head + 1};
}

Range mlp_columns_of_rank(std::int64_t intermediate_size, const RankPlace& place) {
  std::int64_t unit = 256;
  while (unit > 1 && (intermediate_size % unit != 0 || intermediate_size / unit < place.num_ranks)) unit /= 2;
  return range_of_rank(intermediate_size, unit, place);
}

Range layers_of_stage(const DecoderConfig& config, const RankPlace& place) {
  const layers::AttentionShape& attention = config.attention;
  constexpr double kMlpMatrices = 3;  // of a gated MLP; a plain one has two
  const double weights_of_layer =
      2.0 * static_cast<double>(attention.query_width() + attention.kv_width()) +
      kMlpMatrices * static_cast<double>(config.intermediate_size);  // each times hidden_size, as those of the head
  const double head = static_cast<double>(config.vocab_size) / weights_of_layer;
  const double of_stage = (static_cast<double>(config.num_layers()) + head) / place.num_stages;
  const auto border = [&](std::int32_t stage) -> std::int64_t {
    if (stage == place.num_stages) return config.num_layers();
    const std::int64_t last = config.num_layers() - (place.num_stages - stage);  // each stage behind it has a layer
    return std::clamp<std::int64_t>(std::llround(of_stage * stage), stage, last);
  };
  return {border(place.stage), border(place.stage + 1)};
}

Status check_ranks(const DecoderConfig& config, std::int32_t num_ranks, std::int32_t num_stages) {
  if (num_stages > 1 && num_stages > config.num_layers()) {
    return fail(ErrorCode::bad_config,
                "pipeline_parallel_size is " + std::to_string(num_stages) + ", but the model has only " +
                    std::to_string(config.num_layers()) + " layers",
                "pipeline_parallel_size");
  }
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorCode::bad_config,
                "tensor_parallel_size is " + std::to_string(num_ranks) + ", but the model has " + reason,
                "tensor_parallel_size");
  };
  const layers::AttentionShape& attention = config.attention;
  if (attention.num_heads % num_ranks != 0) {
    return refuse(std::to_string(attention.num_heads) + " attention heads, which it does not divide");
  }
  if (attention.num_kv_heads % num_ranks != 0 && num_ranks % attention.num_kv_heads != 0) {
    return refuse(std::to_string(attention.num_kv_heads) + " KV heads: one number must divide the other");
  }
  if (config.intermediate_size < num_ranks) {
    return refuse("only " + std::to_string(config.intermediate_size) + " columns inside its MLP");
  }
  if (config.vocab_size < num_ranks) return refuse("only " + std::to_string(config.vocab_size) + " tokens");
  return {};
}

bool is_token_embedding(std::string_view module) {
  const RoleOfModule* found = role_of(module);
  return found != nullptr && found->role == Role::vocabulary && found->suffix != kHead;
}

std::optional<ModuleSlice> slice_of(const DecoderConfig& config, const RankPlace& place, std::string_view module) {
  const RoleOfModule* found = role_of(module);
  if (found == nullptr || place.num_ranks == 1) return std::nullopt;
  const layers::AttentionShape& attention = config.attention;
  const Range queries = times(range_of_rank(attention.num_heads, 1, place), attention.head_dim);
  const Range keys = times(kv_heads_of_rank(attention.num_kv_heads, place), attention.head_dim);
  const Range mlp = mlp_columns_of_rank(config.intermediate_size, place);
  const std::int64_t query_width = attention.query_width();
  const std::int64_t kv_width = attention.kv_width();
  ModuleSlice slice;
  slice.is_stored_transposed = found->is_stored_transposed;
  switch (found->role) {
    case Role::queries:
      slice.full_size = query_width;
      slice.ranges = {queries};
      break;
    case Role::keys_or_values:
      slice.full_size = kv_width;
      slice.ranges = {keys};
      break;
    case Role::packed_qkv:
      slice.full_size = query_width + 2 * kv_width;
      slice.ranges = {queries, behind(keys, query_width), behind(keys, query_width + kv_width)};
      break;
    case Role::attention_output:
      slice.axis = Axis::inputs;
      slice.full_size = query_width;
      slice.ranges = {queries};
      break;
    case Role::gate_or_up:
      slice.full_size = config.intermediate_size;
      slice.ranges = {mlp};
      break;
    case Role::packed_gate_up:
      slice.full_size = 2 * config.intermediate_size;
      slice.ranges = {mlp, behind(mlp, config.intermediate_size)};
      break;
    case Role::down:
      slice.axis = Axis::inputs;
      slice.full_size = config.intermediate_size;
      slice.ranges = {mlp};
      break;
    case Role::vocabulary:
      slice.full_size = config.vocab_size;
      slice.ranges = {range_of_rank(config.vocab_size, 1, place)};
      break;
  }
  return slice;
}

}  // namespace pagoda::models
