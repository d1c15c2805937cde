#include "io/model_files/hf_config.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 172,
    "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})");
}

Result<models::ModelConfig> parse(const json& config) {
  const auto text = config.dump();
  return parse_hf_config({text, "config.json"}, nullptr);
}

Result<models::ModelConfig> parse(const json& config, const json& generation) {
  const auto text = config.dump();
  const auto generation_text = generation.dump();
  const ConfigText file{generation_text, "generation_config.json"};
  return parse_hf_config({text, "config.json"}, &file);
}

TEST(HfConfig, ALlamaConfigIsReadWhole) {
  const auto config = parse(llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->vocab_size, 512);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 172);
  EXPECT_EQ(config->num_layers, 5);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 500000.0);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_FALSE(config->attention_bias);
  EXPECT_EQ(config->checkpoint_dtype, DType::bf16);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(HfConfig, AbsentAndNullKeysTakeTheDefaultsOfTransformers) {
  auto source = llama();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings",
                          "bos_token_id", "eos_token_id", "torch_dtype"}) {
    source.erase(key);
  }
  source["head_dim"] = nullptr;
  source["rope_scaling"] = nullptr;
  const auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_kv_heads, 8);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->checkpoint_dtype, DType::f32);
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_THAT(config->eos_token_ids, ElementsAre());
}

TEST(HfConfig, NewerFilesSpellDtypeAndRopeParametersDifferently) {
  auto source = llama();
  source.erase("torch_dtype");
  source.erase("rope_theta");
  source["dtype"] = "float16";
  source["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000000.0}};
  const auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->checkpoint_dtype, DType::f16);
  EXPECT_EQ(config->rope_theta, 1000000.0);
}

TEST(HfConfig, RopeScalingIsReadFromOlderAndNewerFiles) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.type, models::RopeScaling::Type::linear);
  EXPECT_EQ(config->rope_scaling.factor, 2.5);
  EXPECT_EQ(config->rope_theta, 500000.0);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 1e4},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.type, models::RopeScaling::Type::llama3);
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 64);
  EXPECT_EQ(config->rope_theta, 1e4);
}

TEST(HfConfig, YarnIsReadWithTheDefaultsOfTransformers) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.type, models::RopeScaling::Type::yarn);
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 512);
  EXPECT_EQ(config->rope_scaling.beta_fast, 32.0);
  EXPECT_EQ(config->rope_scaling.beta_slow, 1.0);
  EXPECT_TRUE(config->rope_scaling.truncate);
  EXPECT_DOUBLE_EQ(config->rope_scaling.attention_factor, 1.138629436111989);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->position_limit(), 2048);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "yarn"},  {"original_max_position_embeddings", 128},
                               {"beta_fast", 20.0},    {"beta_slow", 2.0},
                               {"truncate", false},    {"mscale", 0.7},
                               {"mscale_all_dim", 1.3}};
  config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.factor, 4.0) << "512 / 128";
  EXPECT_FALSE(config->rope_scaling.truncate);
  EXPECT_DOUBLE_EQ(config->rope_scaling.attention_factor, 0.9295234923939468);
  EXPECT_EQ(config->position_limit(), 512);

  source["rope_parameters"]["attention_factor"] = 0.9;
  source["original_max_position_embeddings"] = 256;
  config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 256) << "beside the scaling it wins";
  EXPECT_EQ(config->rope_scaling.attention_factor, 0.9);
}

TEST(HfConfig, LinearAndDynamicScalingReachFurtherThanTheDefaultContext) {
  auto source = llama();
  for (const char* type : {"linear", "dynamic"}) {
    source["rope_scaling"] = {{"type", type}, {"factor", 2.5}};
    const auto config = parse(source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->max_position_embeddings, 512);
    EXPECT_EQ(config->position_limit(), 1280);
  }
  source["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(source)->position_limit(), 512);
}

TEST(HfConfig, HeadDimNeedNotFollowFromHiddenSize) {
  auto source = llama();
  source["hidden_size"] = 60;
  source["head_dim"] = 16;
  const auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 16);
}

json of_architecture(const char* name) {
  auto source = llama();
  source["architectures"] = {name};
  return source;
}

TEST(HfConfig, ASlidingWindowOfEveryLayerIsOneNumber) {
  auto source = of_architecture("MistralForCausalLM");
  source["sliding_window"] = 32;
  auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->sliding_window, 32);
  EXPECT_EQ(config->window_of(4), 32);
  source["sliding_window"] = nullptr;
  config = parse(source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->sliding_window, 0);
}

TEST(HfConfig, ASlidingWindowThatIsNotMentionedIsThatOfTransformers) {
  const auto mistral = parse(of_architecture("MistralForCausalLM"));
  ASSERT_TRUE(mistral) << mistral.error().message;
  EXPECT_EQ(mistral->sliding_window, 4096);
  for (const char* name : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    auto source = of_architecture(name);
    EXPECT_EQ(parse(source)->sliding_window, 0) << name;
    source["use_sliding_window"] = true;
    source["max_window_layers"] = 0;
    EXPECT_EQ(parse(source)->sliding_window, 4096) << name;
    source["sliding_window"] = nullptr;
    EXPECT_EQ(parse(source)->sliding_window, 0) << name;
  }
}

TEST(HfConfig, QwenMayGiveAWindowToSomeLayersOnly) {
  auto source = of_architecture("Qwen2ForCausalLM");
  source["sliding_window"] = 32;
  source["use_sliding_window"] = false;
  auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->attention_bias);
  EXPECT_FALSE(config->attention_output_bias);
  EXPECT_EQ(config->window_of(4), 0);

  source["use_sliding_window"] = true;
  source["max_window_layers"] = 3;
  config = parse(source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->sliding_window, 0);
  EXPECT_THAT(config->layer_windows, ElementsAre(0, 0, 0, 32, 32));

  source["max_window_layers"] = 0;
  config = parse(source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->sliding_window, 32);
  EXPECT_THAT(config->layer_windows, ElementsAre());

  source["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention", "full_attention"};
  config = parse(source);
  ASSERT_TRUE(config);
  EXPECT_THAT(config->layer_windows, ElementsAre(0, 32, 0, 0, 0));

  source["layer_types"] = {"full_attention"};
  config = parse(source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "layer_types");
  source["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention", "full_attention"};
  config = parse(source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
}

TEST(HfConfig, Qwen3HasHeadsOf128UnlessItSaysOtherwise) {
  const auto config = parse(of_architecture("Qwen3ForCausalLM"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_FALSE(config->attention_bias);
}

/// The keys of a published Baichuan config that tell the models apart.
json baichuan(const char* name, std::int64_t hidden, std::int64_t heads, std::int64_t vocab,
              const char* positions_key) {
  auto source = of_architecture(name);
  for (const char* key : {"num_key_value_heads", "max_position_embeddings", "rope_theta", "tie_word_embeddings"}) {
    source.erase(key);
  }
  source["model_type"] = "baichuan";
  source["hidden_size"] = hidden;
  source["num_attention_heads"] = heads;
  source["vocab_size"] = vocab;
  source[positions_key] = 4096;
  return source;
}

TEST(HfConfig, BaichuanModelsAreToldApartByNameAndSizes) {
  using models::PositionKind;
  struct Published {
    json source;
    PositionKind positions;
    bool normalized_head;
  };
  const std::vector<Published> table = {
      {baichuan("BaiChuanForCausalLM", 4096, 32, 64000, "max_position_embeddings"), PositionKind::rotary, false},
      {baichuan("BaichuanForCausalLM", 5120, 40, 64000, "model_max_length"), PositionKind::alibi, false},
      {baichuan("BaichuanForCausalLM", 4096, 32, 125696, "max_position_embeddings"), PositionKind::rotary, true},
      {baichuan("BaichuanForCausalLM", 5120, 40, 125696, "model_max_length"), PositionKind::alibi, true},
  };
  for (const auto& [source, positions, normalized_head] : table) {
    const auto config = parse(source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->positions, positions) << source;
    EXPECT_EQ(config->normalized_head, normalized_head) << source;
    EXPECT_EQ(config->max_position_embeddings, 4096);
    EXPECT_EQ(config->num_kv_heads, config->num_heads);
    EXPECT_EQ(config->head_dim, 128);
  }
}

TEST(HfConfig, BaichuanModelsOfOtherSizesSayWhatTheyAre) {
  auto source = baichuan("BaichuanForCausalLM", 64, 8, 512, "model_max_length");
  source["position_embedding"] = "ROPE";
  source["norm_head"] = true;
  auto config = parse(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions, models::PositionKind::rotary);
  EXPECT_TRUE(config->normalized_head);

  source["position_embedding"] = "LEARNED";
  config = parse(source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "position_embedding");

  source = baichuan("BaichuanForCausalLM", 64, 8, 512, "model_max_length");
  source.erase("model_max_length");
  config = parse(source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "max_position_embeddings");
}

TEST(HfConfig, EveryKnownArchitectureCanBeRead) {
  for (const auto& name : models::known_architectures()) {
    const auto config = parse(of_architecture(name.c_str()));
    EXPECT_TRUE(config || config.error().param != "architectures") << name;
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
      {"architectures", {"MambaForCausalLM"}, "\"MambaForCausalLM\" is not known; known are"},
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
      {"quantization_config", {{"bits", 4}}, "quantised checkpoints are not supported", ErrorCode::unsupported},
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
           {"", "not valid JSON at byte"}, {"{\"a\":", "not valid JSON at byte"}, {"[1]", "not a JSON object"}}) {
    const auto config = parse_hf_config({text, "config.json"}, nullptr);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    EXPECT_THAT(config.error().message, HasSubstr("config.json: " + reason));
  }
}

}  // namespace
}  // namespace pagoda::io
