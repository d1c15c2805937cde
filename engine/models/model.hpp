#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/models/model_config.hpp"
#include "engine/models/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::models {

/// The KV memory of one device, as the cache engine owns it: blocks of all layers.
struct KvCache {
  std::byte* base = nullptr;
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;
  DType dtype = DType::f32;
};

/// Inputs of one model run: a batch of sequences, each with some new tokens (a prompt chunk or one decode token). All
/// pointers are device memory and stay valid until the run has passed in stream order.
struct ForwardBatch {
  std::int32_t num_tokens = 0;
  std::int32_t num_sequences = 0;
  const std::int32_t* token_ids = nullptr;     ///< [num_tokens]
  const std::int32_t* positions = nullptr;     ///< [num_tokens]
  const std::int64_t* slot_mapping = nullptr;  ///< [num_tokens]
  const std::int32_t* query_start = nullptr;   ///< [num_sequences + 1]
  const std::int32_t* context_len = nullptr;   ///< [num_sequences], with the new tokens
  const std::int32_t* block_tables = nullptr;  ///< [num_sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::int32_t max_query_len = 0;            ///< of one sequence: an upper bound of its new tokens
  std::int32_t max_context_len = 0;          ///< likewise of context_len
  const std::int32_t* logit_rows = nullptr;  ///< [num_logit_rows]: the token rows whose logits are wanted
  std::int32_t num_logit_rows = 0;
};

/// Largest batch that a model must be able to run; sizes its activation buffers once.
struct ModelLimits {
  std::int32_t max_tokens = 0;      ///< tokens per run
  std::int32_t max_logit_rows = 0;  ///< logit rows per run
  std::int64_t max_model_len = 0;   ///< positions
};

/// A causal language model on one device. Not thread-safe: one run at a time, issued inside Stream::submit.
class Model {
 public:
  virtual ~Model() = default;
  /// logits: [num_logit_rows, vocab_size], float32, device memory.
  virtual Status forward(kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache, float* logits) = 0;
  /// Logits of more token rows of the last forward, whichever that asked for: so that all rows of a prompt can be
  /// looked at in pieces of at most max_logit_rows. rows: [num_rows], device memory; logits: [num_rows, vocab_size],
  /// likewise.
  virtual Status more_logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows,
                             float* logits) = 0;
};

/// Bytes of a KV block of `block_size` tokens: keys and values of all layers, with their scales.
std::int64_t kv_bytes_per_block(const ModelConfig& config, DType kv_dtype, std::int32_t block_size);

/// The architectures that create_model knows, sorted.
std::vector<std::string> known_architectures();

/// Checks every shape against the config and takes the weights where they lie in `weights` (which must outlive the
/// model). Errors: unknown architecture (bad_config, lists the known ones), a config that is not consistent
/// (bad_config, names the key), missing or misshapen tensors (bad_file), no memory for activations (out_of_memory).
Result<std::unique_ptr<Model>> create_model(const ModelConfig& config, const WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device, const ModelLimits& limits);

}  // namespace pagoda::models
