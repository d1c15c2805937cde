#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/layers/batch_adapters.hpp"
#include "engine/layers/batch_prompts.hpp"
#include "engine/types.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::layers {

class LinearInputs;
class ResidualObserver;

/// The KV memory of one device, which the cache engine owns. A block holds all layers of one KV group.
struct KvCache {
  std::byte* base = nullptr;  ///< of block 0; for a draft model, of its part of that block
  std::int64_t num_blocks = 0;
  std::int64_t block_bytes = 0;  ///< KvLayout::block_bytes
  std::int32_t block_size = 0;   ///< token slots per block
  DType dtype = DType::f32;
  /// Only for a draft model, all of whose KV groups are in the same blocks: bytes of one group in a block. Batches then
  /// have the slots and the tables of one group.
  std::int64_t group_bytes = 0;

  /// Returns the bytes of a block before the layers of a KV group.
  std::int64_t offset_of(KvGroupId group) const { return group * group_bytes; }
  /// Returns the KV group whose slots and tables the layers of `group` use.
  KvGroupId tables_of(KvGroupId group) const { return group_bytes > 0 ? 0 : group; }
};

/// Inputs of one model run: a batch of sequences, each with some new tokens (a prompt chunk or one decode token). All
/// pointers are device memory and stay valid until the stream has executed the run.
struct ForwardBatch {
  std::int32_t num_tokens = 0;
  std::int32_t num_sequences = 0;
  const std::int32_t* token_ids = nullptr;     ///< [num_tokens]
  const std::int32_t* positions = nullptr;     ///< [num_tokens]
  const std::int64_t* slot_mapping = nullptr;  ///< [num_kv_groups, num_tokens]
  const std::int32_t* query_start = nullptr;   ///< [num_sequences + 1]
  const std::int32_t* context_len = nullptr;   ///< [num_sequences]: tokens of each sequence, the new tokens included
  const std::int32_t* block_tables = nullptr;  ///< [num_kv_groups, num_sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::int32_t max_query_len = 0;         ///< upper bound of the new tokens of one sequence
  std::int32_t max_context_len = 0;       ///< upper bound of context_len
  LinearInputs* linear_inputs = nullptr;  ///< receives the inputs of linear layers; null if nothing records them
  ResidualObserver* residual_observer = nullptr;  ///< receives the inputs of layers; null if nothing uses them
  /// Host memory, with the memory of the adapters; null if no row has an adapter.
  const BatchAdapters* adapters = nullptr;
  /// Host memory, with the memory of the prompts; null if no row is a virtual token.
  const BatchPrompts* prompts = nullptr;
  /// Only for a draft head: where the features of the tokens are (models::DraftHead); device memory.
  const std::int32_t* feature_rows = nullptr;
  bool continues_last_run = false;  ///< whether these are rows of the head's last run; otherwise of the KV cache

  /// Returns the slots of one KV group: [num_tokens].
  const std::int64_t* slots_of(KvGroupId group) const { return slot_mapping + std::int64_t{group} * num_tokens; }
  /// Returns the block tables of one KV group: [num_sequences, max_blocks].
  const std::int32_t* tables_of(KvGroupId group) const {
    return block_tables + std::int64_t{group} * num_sequences * max_blocks;
  }
};

/// Largest batch that a model must be able to run. The model sizes its memory from it once.
struct ModelLimits {
  std::int32_t max_tokens = 0;      ///< tokens per run
  std::int32_t max_logit_rows = 0;  ///< rows whose logits are computed in one call
  std::int64_t max_model_len = 0;   ///< positions
};

}  // namespace pagoda::layers
