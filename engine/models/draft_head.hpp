#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/layers/residual_observer.hpp"
#include "engine/models/model.hpp"
#include "engine/types.hpp"

namespace pagoda::models {

/// Facts about a draft head, in addition to those of its decoder (ModelSpec::draft_head).
struct DraftHeadFacts {
  /// Number of layers of the model whose inputs the head reads.
  static constexpr std::size_t kNumFeatureLayers = 3;

  std::int64_t target_hidden_size = 0;  ///< hidden size of the model
  std::int64_t draft_vocab_size = 0;    ///< number of tokens that it drafts
  /// Layers of the model whose inputs the head reads, ascending; empty = default_feature_layers().
  std::vector<std::int64_t> feature_layers;
  /// [draft_vocab_size]: the model's token for each draft token; empty = they are the first ones of the vocabulary.
  std::vector<TokenId> tokens;

  /// Returns a low, a middle and a high layer: those of the paper's authors.
  static std::vector<std::int64_t> default_feature_layers(std::int64_t num_layers) {
    return {2, num_layers / 2, num_layers - 3};
  }
};

/// The place of features in KV blocks: hidden_size float32 values for each token slot. The first halves of a block's
/// rows come before the second halves, as keys and values do.
struct FeatureLayout {
  std::int64_t hidden_size = 0;  ///< even
  std::int32_t block_size = 0;   ///< token slots per block

  std::int64_t half_size() const { return hidden_size / 2; }
  std::int64_t half_bytes() const { return half_size() * static_cast<std::int64_t>(sizeof(float)); }
  /// Returns the bytes of the features in a block.
  std::int64_t bytes() const { return 2 * block_size * half_bytes(); }
  /// Returns the index of the first half of a slot's row, counted in halves from the first block. Its second half is
  /// block_size halves behind it. block_bytes: a multiple of half_bytes().
  std::int64_t first_half(std::int64_t slot, std::int64_t block_bytes) const {
    return slot / block_size * (block_bytes / half_bytes()) + slot % block_size;
  }
};

/// A head that makes drafts from the hidden rows of a model (EAGLE-3, Li et al. 2025). The features of a token are
/// computed from the inputs of three layers of the model, and are kept with the KV of the token. The head reads a token
/// together with the features of the token before it, and scores the tokens that may follow. A draft has no features
/// yet: the head's own last row takes their place.
///
/// The token at position 0 has no features before it: a head never reads it, and its slot holds no KV. Each token of a
/// batch has entries in ForwardBatch::feature_rows: two, the halves of the features of the token before it in the KV
/// cache (FeatureLayout), or with continues_last_run one, the row of the last run that the token follows.
class DraftHead : public Model {
 public:
  /// Connects the head with the model that verifies its drafts, which must outlive it. Call before the first run of
  /// either. cache: the head's KV memory; the features lie before it in each block. facts: those of its ModelSpec, with
  /// feature_layers. Errors: embeddings of another width (bad_config), a cache with too many slots (bad_config),
  /// out_of_memory.
  virtual Status attach(const Model& target, const layers::KvCache& cache, const DraftHeadFacts& facts) = 0;

  /// Returns the observer of all runs of the model. It keeps the features of their tokens.
  virtual layers::ResidualObserver& observer() = 0;
};

}  // namespace pagoda::models
