#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/layers/forward_batch.hpp"
#include "engine/models/model_config.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::models {

/// A causal language model on one device. Not thread-safe: one run at a time, issued inside Stream::submit.
class Model {
 public:
  virtual ~Model() = default;
  /// logits: [num_logit_rows, vocab_size], float32, device memory.
  virtual Status forward(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache,
                         float* logits) = 0;
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
Result<std::unique_ptr<Model>> create_model(const ModelConfig& config, const weights::WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits);

}  // namespace pagoda::models
