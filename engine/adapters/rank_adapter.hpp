#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "engine/adapters/adapter.hpp"
#include "engine/weights/rank_weights.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

/// The part of a model that one of several ranks holds, for its adapters.
struct RankParts {
  bool is_first_rank = true;  ///< of its stage
  /// Returns whether the rank's stage has a module.
  std::function<bool(std::string_view module)> has;
  weights::RankWeights::SliceOf slice_of;
  /// Returns whether a module is an embedding, whose change is whole on each rank.
  bool (*is_table)(std::string_view module) = nullptr;
  std::int64_t num_kv_heads = 0;  ///< of the whole model
  std::int64_t head_dim = 0;
  weights::Range kv_heads;  ///< of the rank
};

/// Reduces an adapter to the part that belongs to the rank's part of the model. Changes of modules that other stages
/// have are dropped. Modules that the ranks of a stage have whole stay as they are. The adapter must fit the whole
/// model (check). Errors: unsupported if DoRA changes a layer whose inputs are divided between ranks, or an embedding:
/// no rank has the whole rows then, whose length DoRA needs.
Status take_part_of_rank(Adapter& adapter, const RankParts& parts);

}  // namespace pagoda::adapters
