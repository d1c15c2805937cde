#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/weights/rank_weights.hpp"
#include "kernels/result.hpp"

namespace pagoda::models {

struct DecoderConfig;

/// The place of one of the devices that compute a model: its layers are divided between stages, which compute one
/// behind the other (pipeline parallel), and each layer between the ranks of its stage (tensor parallel).
struct RankPlace {
  std::int32_t rank = 0;  ///< in its stage
  std::int32_t num_ranks = 1;
  std::int32_t stage = 0;
  std::int32_t num_stages = 1;

  bool operator==(const RankPlace&) const = default;
  /// Returns its number among all ranks of a replica: those of the first stage come first.
  std::int32_t index() const { return stage * num_ranks + rank; }
  /// Returns whether the device computes the whole model.
  bool is_alone() const { return num_ranks == 1 && num_stages == 1; }
  /// Returns whether its stage embeds the tokens.
  bool is_in_first_stage() const { return stage == 0; }
  /// Returns whether its stage has the last norm and the head.
  bool is_in_last_stage() const { return stage == num_stages - 1; }
};

/// Divides `size` into one range for each rank, of about equal numbers of units; the last range has the rest. Returns
/// the range of a rank.
weights::Range range_of_rank(std::int64_t size, std::int64_t unit, const RankPlace& place);

/// Returns the KV heads of a rank. Where there are fewer than ranks, several ranks have the same one.
weights::Range kv_heads_of_rank(std::int64_t num_kv_heads, const RankPlace& place);

/// Returns the columns inside the MLP that a rank computes. Borders are at multiples of 256 columns if each rank then
/// has some, because quantised files have groups of up to 256 columns.
weights::Range mlp_columns_of_rank(std::int64_t intermediate_size, const RankPlace& place);

/// Returns the layers of a stage, at least one. Borders are where the stages have about the same number of weights to
/// read for a token; the head counts as so many layers as it has weights. `config`: of the whole model.
weights::Range layers_of_stage(const DecoderConfig& config, const RankPlace& place);

/// Returns an error (bad_config: tensor_parallel_size, pipeline_parallel_size) if the model cannot be divided between
/// so many ranks and stages.
Status check_ranks(const DecoderConfig& config, std::int32_t num_ranks, std::int32_t num_stages = 1);

/// Returns the part of a module that a rank holds; none = all of it. The module's last names tell what it is, for all
/// families: projections to heads, the projection behind attention, the MLP, the embedding and the head of the
/// vocabulary. `config`: of the whole model.
std::optional<weights::ModuleSlice> slice_of(const DecoderConfig& config, const RankPlace& place,
                                             std::string_view module);

/// Returns whether a module is the embedding of tokens.
bool is_token_embedding(std::string_view module);

}  // namespace pagoda::models
