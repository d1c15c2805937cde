#pragma once

#include <cstdint>
#include <memory>

#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/batch_adapters.hpp"
#include "engine/layers/forward_batch.hpp"
#include "kernels/communicator.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {
class Embedding;
}

namespace pagoda::models {

/// Memory that a model takes besides its weights, in bytes.
struct ModelMemory {
  std::int64_t activation_bytes = 0;  ///< working memory of the largest run
  std::int64_t position_bytes = 0;    ///< rotary or ALiBi tables
};

/// A causal language model on one device. It has its weights when it is made (ModelSpec::build); allocate gives it its
/// working memory. Not thread-safe: one run at a time, issued inside Stream::submit.
class Model {
 public:
  virtual ~Model() = default;

  /// Returns the memory that allocate takes on a device with or without narrow rows (Ops::supports_narrow_rows).
  virtual ModelMemory memory(const layers::ModelLimits& limits, bool narrow_rows) const = 0;
  /// Allocates the memory for runs of up to `limits`. Call once, before the first run. Errors: out_of_memory.
  virtual Status allocate(std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits) = 0;
  /// Connects the model with the other ranks of its replica (ModelSpec::of_rank). Call before the first run, unless
  /// there is one rank. `ranks` must outlive the model.
  virtual void connect(kernels::Communicator& ranks) = 0;

  /// Runs all layers over a batch. Writes the KV of its tokens to the cache, and keeps their hidden rows, which are the
  /// input of the head, in the model's memory until the next run. A stage runs its layers; only the last one has hidden
  /// rows and logits. Errors: a batch above the limits (internal); errors of ops.
  virtual Status run(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache) = 0;
  /// Computes the scores of the vocabulary for `num_rows` token rows of the last run, between 0 and max_logit_rows.
  /// rows: [num_rows]; logits: [num_rows, vocab_size], float32; both are device memory.
  /// `adapters`: which of these rows have an adapter, by their places in `rows`; null = none.
  virtual Status logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits,
                        const layers::BatchAdapters* adapters) = 0;
  /// Copies hidden rows of the last run: the rows that logits() multiplies with the head, normalised if the model ends
  /// with a norm. rows: [num_rows]; hidden: [num_rows, hidden_width()], float32; both are device memory.
  virtual Status hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) = 0;
  virtual std::int64_t hidden_width() const = 0;

  /// Returns the embedding of tokens, without what the model does with its rows. It lives as long as the model.
  virtual const layers::Embedding& token_embedding() const = 0;
  /// Returns the modules that adapters can change. They live as long as the model.
  virtual const layers::AdapterModules& adapter_modules() const = 0;
};

}  // namespace pagoda::models
