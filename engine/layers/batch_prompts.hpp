#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/adapter_modules.hpp"

namespace pagoda::layers {

/// The virtual tokens of a prompt adapter, which are the first tokens of its sequences: either their embeddings, or
/// the keys and values that each layer has for them. Does not own its memory (adapters::BoundAdapter does).
struct PromptWeights {
  const AdapterModules* modules = nullptr;  ///< of the model
  std::int64_t num_tokens = 0;
  const float* embeddings = nullptr;  ///< [num_tokens, embedding_width], or null: there is a prefix
  /// [num_tokens, num_layers, 2, kv width]: keys as they are in the KV cache, then values. Null: there are embeddings.
  const float* prefix = nullptr;

  /// Returns the keys of a layer for a virtual token. The keys of the next token are prefix_stride() floats behind.
  const float* keys_of(std::int64_t token, std::int64_t layer) const {
    return prefix + token * prefix_stride() + layer * 2 * modules->kv().width();
  }
  const float* values_of(std::int64_t token, std::int64_t layer) const {
    return keys_of(token, layer) + modules->kv().width();
  }
  std::int64_t prefix_stride() const { return modules->kv().num_layers * 2 * modules->kv().width(); }
};

/// Rows of a batch that are virtual tokens of one sequence and follow one another. Their token ids mean nothing.
struct PromptRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t first_token = 0;  ///< index of the first among the virtual tokens
  const PromptWeights* prompt = nullptr;
};

/// The virtual tokens of a batch, in the order of the rows.
using BatchPrompts = std::vector<PromptRows>;

}  // namespace pagoda::layers
