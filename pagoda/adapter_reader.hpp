#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/adapters/adapter.hpp"
#include "engine/adapters/rank_adapter.hpp"
#include "engine/config.hpp"
#include "engine/models/model.hpp"
#include "kernels/dtype.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda {

/// Reads the adapters of one engine, and makes them ready to be bound to its model. Thread-safe.
class AdapterReader {
 public:
  AdapterReader(const EngineConfig& config, const EnginePlan& plan);

  /// Returns whether the engine has adapters.
  bool is_enabled() const { return max_rank_ > 0 || max_virtual_tokens_ > 0; }
  /// Reads an adapter and rounds its matrices (lora_dtype). Errors: those of io::read_adapter, adapters::round_matrices
  /// and io::drop_base_weights; unsupported (a kind that is not enabled, a rank or virtual tokens beyond the limits).
  Result<adapters::Adapter> read(const std::string& path) const;

 private:
  Status check_limits(const adapters::Adapter& adapter) const;
  /// Reduces the adapter to the rank's part, if there are several ranks.
  Status take_part_of_rank(adapters::Adapter& adapter) const;

  std::int32_t max_rank_;            // 0 = there is no LoRA
  std::int32_t max_virtual_tokens_;  // 0 = there are no prompt adapters
  std::optional<DType> dtype_;       // type that matrices of float32 are rounded to
  std::int64_t head_dim_;
  // Set if there are several ranks; these models have no weights.
  std::shared_ptr<const models::Model> whole_;  // what an adapter must fit before it is divided
  std::shared_ptr<const models::Model> part_;
  adapters::RankParts parts_;
  std::shared_ptr<const io::ModelWeights> checkpoint_;
};

/// Reads the adapters that the configuration names and checks that they fit the planned model. Reads no weights of the
/// model, unless an adapter repeats them. Errors: as of AdapterReader::read and adapters::check; the message has the
/// adapter's name, `param` is the key that names it.
Status check_adapters(const EngineConfig& config, const EnginePlan& plan);

}  // namespace pagoda
