#include "io/model_files/hf_config.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/families.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 172,
    "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})");
}

Result<models::ModelSpec> parse(const json& config) {
  const auto text = config.dump();
  return parse_hf_config({text, "config.json"}, nullptr);
}

Result<models::ModelSpec> parse(const json& config, const json& generation) {
  const auto text = config.dump();
  const auto generation_text = generation.dump();
  const ConfigText file{generation_text, "generation_config.json"};
  return parse_hf_config({text, "config.json"}, &file);
}

TEST(HfConfig, ALlamaConfigIsReadWhole) {
  const auto spec = parse(llama());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec->vocab_size, 512);
  EXPECT_EQ(spec->max_position_embeddings, 512);
  EXPECT_EQ(spec->position_limit, 512);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_EQ(spec->kv_layout(16, DType::bf16).block_bytes(), 5 * 2 * 4 * 8 * 16 * 2);
  EXPECT_EQ(spec->checkpoint_dtype, DType::bf16);
  EXPECT_EQ(spec->bos_token_id, 1);
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(2));
}

TEST(HfConfig, AbsentKeysTakeTheDefaultsOfTransformers) {
  auto source = llama();
  for (const char* key : {"bos_token_id", "eos_token_id", "torch_dtype"}) source.erase(key);
  const auto spec = parse(source);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->checkpoint_dtype, DType::f32);
  EXPECT_EQ(spec->bos_token_id, std::nullopt);
  EXPECT_THAT(spec->eos_token_ids, ElementsAre());
}

TEST(HfConfig, NewerFilesSpellDtypeDifferently) {
  auto source = llama();
  source.erase("torch_dtype");
  source["dtype"] = "float16";
  const auto spec = parse(source);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->checkpoint_dtype, DType::f16);
}

json of_architecture(const char* name) {
  auto source = llama();
  source["architectures"] = {name};
  return source;
}

TEST(HfConfig, EveryKnownArchitectureCanBeRead) {
  for (const auto& name : models::known_architectures()) {
    const auto spec = parse(of_architecture(name.c_str()));
    EXPECT_TRUE(spec || spec.error().param != "architectures") << name;
    if (spec) {
      EXPECT_EQ(spec->architecture, name);
    }
  }
}

TEST(HfConfig, EosIdsOfTheGenerationConfigWin) {
  auto config = parse(llama(), {{"eos_token_id", {7, 9, 7}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 9));
  config = parse(llama(), json::object());
  ASSERT_TRUE(config);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(HfConfig, BothFilesAreFoundInTheFolder) {
  const test::TemporaryFolder folder;
  auto config = load_hf_config(folder.path());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::bad_config);
  EXPECT_THAT(config.error().message, HasSubstr("config.json: cannot open: No such file or directory"));

  folder.write("config.json", llama().dump());
  config = load_hf_config(folder.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));

  folder.write("generation_config.json", R"({"eos_token_id": 5})");
  config = load_hf_config(folder.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(5));

  folder.write("generation_config.json", "[]");
  config = load_hf_config(folder.path());
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("generation_config.json: not a JSON object"));
}

struct BadKey {
  std::string key;
  json value;  // discarded = remove the key
  std::string reason;
  ErrorCode code = ErrorCode::bad_config;
};

TEST(HfConfig, EveryKeyThatIsWrongIsNamed) {
  const json missing(json::value_t::discarded);
  const std::vector<BadKey> table = {
      {"architectures", missing, "is missing"},
      {"architectures", json::array(), "must be an array with the architecture's name"},
      {"architectures", "LlamaForCausalLM", "must be an array with the architecture's name"},
      {"architectures", {"MambaForCausalLM"}, "\"MambaForCausalLM\" is not supported; supported are"},
      {"architectures", {3}, "must be an array with the architecture's name"},
      {"vocab_size", missing, "is missing"},
      {"hidden_size", missing, "is missing"},
      {"intermediate_size", missing, "is missing"},
      {"num_hidden_layers", missing, "is missing"},
      {"num_attention_heads", missing, "is missing"},
      {"max_position_embeddings", missing, "is missing"},
      {"hidden_size", "64", "must be a whole number, not \"64\""},
      {"hidden_size", 64.5, "must be a whole number, not 64.5"},
      {"hidden_size", -64, "must be 1 to 4194304, not -64"},
      {"hidden_size", 0, "must be 1 to 4194304, not 0"},
      {"hidden_size", 1ULL << 63, "must be 1 to 4194304, not 9223372036854775808"},
      {"hidden_size", 65, "65 is not a multiple of num_attention_heads 8"},
      {"num_hidden_layers", 1 << 20, "must be 1 to 4096"},
      {"num_key_value_heads", 3, "3 does not divide num_attention_heads 8"},
      {"num_key_value_heads", 0, "must be 1 to"},
      {"head_dim", 7, "7 is odd"},
      {"head_dim", true, "must be a whole number, not true"},
      {"rms_norm_eps", "small", "must be a number, not \"small\""},
      {"rms_norm_eps", -1.0, "must be more than 0.0, not -1.0"},
      {"rope_theta", 0, "must be more than 0.0, not 0"},
      {"rope_scaling",
       {{"rope_type", "longrope"}, {"factor", 4.0}},
       "rope scaling \"longrope\" is not supported",
       ErrorCode::unsupported},
      {"rope_scaling", {{"type", "linear"}}, "factor: is missing"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0}}, "factor: must be more than 0.0, not 0"},
      {"rope_scaling", {{"type", 3}}, "type: must be a string, not 3"},
      {"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}}, "low_freq_factor: is missing"},
      {"rope_parameters",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 64}},
       "high_freq_factor: must be more than low_freq_factor"},
      {"rope_parameters",
       {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 2}},
       "beta_fast: must be more than beta_slow"},
      {"rope_parameters", {{"rope_type", "dynamic"}}, "factor: is missing"},
      {"original_max_position_embeddings", -4, "must be 1 to"},
      {"rope_parameters", {{"partial_rotary_factor", 0.5}}, "only 1 is supported", ErrorCode::unsupported},
      {"rope_parameters", {{"rope_theta", "big"}}, "rope_theta: must be a number, not \"big\""},
      {"rope_parameters", 3, "must be an object, not 3"},
      {"hidden_act", "softsign", "\"softsign\" is not supported", ErrorCode::unsupported},
      {"hidden_act", 1, "must be a string, not 1"},
      {"tie_word_embeddings", "yes", "must be true or false, not \"yes\""},
      {"attention_bias", 1, "must be true or false, not 1"},
      {"torch_dtype", "int8", "\"int8\" is not supported", ErrorCode::unsupported},
      {"dtype", 8, "must be a string, not 8"},
      {"quantization_config", {{"bits", 4}}, "quant_method: is missing"},
      {"quantization_config", {{"quant_method", "spqr"}}, "\"spqr\" is not supported", ErrorCode::unsupported},
      {"bos_token_id", -1, "must be a token id, not -1"},
      {"bos_token_id", 512, "512 is not below vocab_size 512"},
      {"eos_token_id", "2", "must be a token id, not \"2\""},
      {"eos_token_id", {2, 4096}, "4096 is not below vocab_size 512"},
      {"eos_token_id", {2, nullptr}, "must be a token id, not null"},
      {"eos_token_id", 1ULL << 40, "must be a token id, not 1099511627776"},
  };
  for (const auto& [key, value, reason, code] : table) {
    auto source = llama();
    source.erase(key);
    if (!value.is_discarded()) source[key] = value;
    const auto config = parse(source);
    ASSERT_FALSE(config) << key << " " << reason;
    EXPECT_EQ(config.error().code, code) << key;
    EXPECT_EQ(config.error().param, key);
    EXPECT_THAT(config.error().message, HasSubstr("config.json: " + key + ": ")) << key;
    EXPECT_THAT(config.error().message, HasSubstr(reason)) << key;
  }
}

TEST(HfConfig, TextThatIsNoJsonObjectIsRefused) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON at byte"},
           {"{\"a\":", "not valid JSON at byte"},
           {"[1]", "not a JSON object"},
           {"{\"hidden_size\":1e999}", "not valid JSON: a number is too large"},
           {"{\"hidden_size\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}",
            "nested deeper than 64"}}) {
    const auto config = parse_hf_config({text, "config.json"}, nullptr);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    EXPECT_THAT(config.error().message, HasSubstr("config.json: " + reason));
  }
}

}  // namespace
}  // namespace pagoda::io
