#pragma once

#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "tests/engine/models/described.hpp"

namespace pagoda::test {

/// A small model of a family.
struct AdaptedFamily {
  std::string name;
  Describe describe = nullptr;
  nlohmann::json more = nlohmann::json::object();
  bool transposed = false;

  models::ModelSpec spec() const {
    nlohmann::json source = {{"vocab_size", 50},
                             {"hidden_size", 32},
                             {"intermediate_size", 48},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"max_position_embeddings", 128},
                             {"head_dim", 8}};
    source.update(more);
    return described(describe, source);
  }
};

inline std::vector<AdaptedFamily> adapted_families() {
  return {
      {.name = "llama", .describe = models::describe_llama, .more = {{"attention_bias", true}}},
      {.name = "qwen2", .describe = models::describe_qwen2, .more = {{"tie_word_embeddings", true}}},
      {.name = "qwen3", .describe = models::describe_qwen3},
      {.name = "phi3", .describe = models::describe_phi3},
      {.name = "gemma3", .describe = models::describe_gemma3, .more = {{"sliding_window", 4}}},
      {.name = "cohere2", .describe = models::describe_cohere2, .more = {{"sliding_window", 4}}},
      {.name = "gpt2",
       .describe = models::describe_gpt2,
       .more = {{"n_embd", 32}, {"n_layer", 2}, {"n_head", 4}, {"n_positions", 128}},
       .transposed = true},
      {.name = "opt",
       .describe = models::describe_opt,
       .more = {{"ffn_dim", 48}, {"do_layer_norm_before", true}, {"word_embed_proj_dim", 16}}},
  };
}

}  // namespace pagoda::test
