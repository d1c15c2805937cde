#include "engine/models/registry.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace pagoda::models {
namespace {

struct Architecture {
  std::string_view name;  ///< architectures[0] of config.json
  Result<std::unique_ptr<Model>> (*create)(const ModelParts&);
};

constexpr std::array kArchitectures{
    Architecture{"BaiChuanForCausalLM", create_baichuan}, Architecture{"BaichuanForCausalLM", create_baichuan},
    Architecture{"GPT2LMHeadModel", create_gpt2},         Architecture{"LlamaForCausalLM", create_llama},
    Architecture{"MistralForCausalLM", create_mistral},   Architecture{"OPTForCausalLM", create_opt},
    Architecture{"Qwen2ForCausalLM", create_qwen2},       Architecture{"Qwen3ForCausalLM", create_qwen3},
};

Status check_sizes(const ModelConfig& config) {
  const auto bad = [](const char* key, const std::string& reason) {
    return fail(ErrorCode::bad_config, std::string(key) + ": " + reason, key);
  };
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.num_layers},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"max_position_embeddings", config.max_position_embeddings},
  };
  for (const auto& [key, size] : sizes) {
    if (size < 1) return bad(key, "must be at least 1, not " + std::to_string(size));
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return bad("num_key_value_heads", std::to_string(config.num_kv_heads) + " does not divide num_attention_heads " +
                                          std::to_string(config.num_heads));
  }
  return {};
}

Status check_limits(const ModelConfig& config, const layers::ModelLimits& limits) {
  const auto bad = [](const char* key, const std::string& reason) {
    return fail(ErrorCode::bad_config, std::string(key) + ": " + reason, key);
  };
  if (limits.max_tokens < 1) return bad("max_tokens", "must be at least 1");
  if (limits.max_logit_rows < 1) return bad("max_logit_rows", "must be at least 1");
  if (limits.max_model_len < 1 || limits.max_model_len > config.position_limit()) {
    return bad("max_model_len", std::to_string(limits.max_model_len) + " is not within 1 and the model's " +
                                    std::to_string(config.position_limit()) + " positions");
  }
  return {};
}

}  // namespace

std::int64_t kv_bytes_per_block(const ModelConfig& config, DType kv_dtype, std::int32_t block_size) {
  const kernels::KvCacheView one_layer{
      .block_size = block_size, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim, .dtype = kv_dtype};
  return 2 * config.num_layers * one_layer.part_bytes();
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const auto& architecture : kArchitectures) names.emplace_back(architecture.name);
  std::ranges::sort(names);
  return names;
}

Result<std::unique_ptr<Model>> create_model(const ModelConfig& config, const weights::WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device,
                                            const layers::ModelLimits& limits) {
  const auto* found = std::ranges::find(kArchitectures, config.architecture, &Architecture::name);
  if (found == kArchitectures.end()) {
    std::string message = "architectures: \"" + config.architecture + "\" is not known; known are";
    for (const auto& name : known_architectures()) message += " " + name;
    return fail(ErrorCode::bad_config, std::move(message), "architectures");
  }
  if (auto status = check_sizes(config); !status) return fail(std::move(status.error()));
  if (auto status = check_limits(config, limits); !status) return fail(std::move(status.error()));
  return found->create({config, weights, std::move(device), limits});
}

}  // namespace pagoda::models
