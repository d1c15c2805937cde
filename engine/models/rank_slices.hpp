#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/weights/rank_weights.hpp"
#include "kernels/result.hpp"

namespace pagoda::models {

struct DecoderConfig;

/// The place of one of the ranks that compute each layer together.
struct RankPlace {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;

  bool operator==(const RankPlace&) const = default;
};

/// Divides `size` into one range for each rank, of about equal numbers of units; the last range has the rest. Returns
/// the range of a rank.
weights::Range range_of_rank(std::int64_t size, std::int64_t unit, const RankPlace& place);

/// Returns the KV heads of a rank. Where there are fewer than ranks, several ranks have the same one.
weights::Range kv_heads_of_rank(std::int64_t num_kv_heads, const RankPlace& place);

/// Returns the columns inside the MLP that a rank computes. Borders are at multiples of 256 columns if each rank then
/// has some, because quantised files have groups of up to 256 columns.
weights::Range mlp_columns_of_rank(std::int64_t intermediate_size, const RankPlace& place);

/// Returns an error (bad_config, tensor_parallel_size) if so many ranks cannot divide the layers.
Status check_ranks(const DecoderConfig& config, std::int32_t num_ranks);

/// Returns the part of a module that a rank holds; none = all of it. The module's last names tell what it is, for all
/// families: projections to heads, the projection behind attention, the MLP, the embedding and the head of the
/// vocabulary. `config`: of the whole model.
std::optional<weights::ModuleSlice> slice_of(const DecoderConfig& config, const RankPlace& place,
                                             std::string_view module);

/// Returns whether a module is the embedding of tokens.
bool is_token_embedding(std::string_view module);

}  // namespace pagoda::models
