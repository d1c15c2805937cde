#include "io/adapters/prompt_config.hpp"

#include <array>
#include <string>

#include "io/adapters/config_keys.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kMaxTokenDim = 1'000'000;
constexpr std::int64_t kMaxPrefixLayers = 10'000;
constexpr std::int64_t kMaxPrefixHeads = 100'000;

constexpr std::array<std::string_view, 6> kPromptKeys{
    "peft_type", "num_virtual_tokens", "token_dim", "num_attention_heads", "num_layers", "num_transformer_submodules"};

/// Keys whose value changes no result of a trained adapter: where it comes from, and how it was trained. The saved
/// virtual tokens are those behind the encoder and its projection.
constexpr std::array<std::string_view, 17> kFreePromptKeys{"task_type",
                                                           "base_model_name_or_path",
                                                           "revision",
                                                           "auto_mapping",
                                                           "peft_version",
                                                           "inference_mode",
                                                           "prompt_tuning_init",
                                                           "prompt_tuning_init_text",
                                                           "tokenizer_name_or_path",
                                                           "tokenizer_kwargs",
                                                           "encoder_reparameterization_type",
                                                           "encoder_hidden_size",
                                                           "encoder_num_layers",
                                                           "encoder_dropout",
                                                           "init_weights",
                                                           "prefix_projection",
                                                           "runtime_config"};

}  // namespace

Result<std::optional<PromptConfig>> PromptConfig::parse(std::string_view text, std::string_view file_name) {
  const auto root = parse_json(text, file_name, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  if (!root->is_object()) return fail(ErrorCode::bad_config, std::string(file_name) + ": must be an object");
  ConfigReader reader(*root, std::string(file_name));
  const std::string type = reader.string("peft_type", "");
  PromptConfig config;
  if (type == "PREFIX_TUNING") {
    config.kind = adapters::VirtualTokens::Kind::prefix;
  } else if (type != "PROMPT_TUNING" && type != "P_TUNING") {
    return std::nullopt;
  }
  refuse_other_keys(reader, *root, kPromptKeys, kFreePromptKeys);
  config.num_virtual_tokens = reader.integer("num_virtual_tokens", 1, kMaxVirtualTokens);
  if (reader.integer("num_transformer_submodules", 1, 2, 1) != 1) {
    reader.reject("num_transformer_submodules", "only 1 is supported: models are decoders", ErrorCode::unsupported);
  }
  const std::int64_t width = reader.integer("token_dim", 1, kMaxTokenDim, 0);
  const std::int64_t layers = reader.integer("num_layers", 1, kMaxPrefixLayers, 0);
  const std::int64_t heads = reader.integer("num_attention_heads", 1, kMaxPrefixHeads, 0);
  if (!reader.status()) return fail(reader.status().error());
  if (config.kind == adapters::VirtualTokens::Kind::embeddings) {
    if (width > 0) config.columns = width;
    return config;
  }
  if (width > 0 && heads > 0 && width % heads != 0) {
    reader.reject("token_dim", std::to_string(width) + " is no multiple of the " + std::to_string(heads) +
                                   " heads (num_attention_heads)");
    return fail(reader.status().error());
  }
  if (width > 0 && layers > 0) config.columns = layers * 2 * width;
  config.num_heads = heads;
  return config;
}

}  // namespace pagoda::io
