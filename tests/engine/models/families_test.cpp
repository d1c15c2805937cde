#include "engine/models/families.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/config_reader.hpp"

namespace pagoda::models {
namespace {

using layers::PositionKind;
using layers::RopeScaling;
using nlohmann::json;
using testing::ElementsAre;

json llama() {
  return json::parse(R"({
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": true})");
}

template <class Config>
Result<Config> read(Config (*family)(ConfigSource&), const json& source) {
  io::ConfigReader reader(source, "config.json");
  Config config = family(reader);
  if (!reader.status()) return fail(reader.status().error());
  return config;
}

std::int64_t limit_of(const GatedDecoderConfig& config) {
  return spec_of(config).position_limit;
}

TEST(Families, AreFoundByTheirExactNames) {
  EXPECT_NE(find_family("LlamaForCausalLM"), nullptr);
  EXPECT_EQ(find_family("LlamaForCausalLm"), nullptr);
  EXPECT_THAT(known_architectures(), testing::Contains("LlamaForCausalLM"));
  EXPECT_TRUE(std::ranges::is_sorted(known_architectures()));
  for (const auto& name : known_architectures()) EXPECT_EQ(find_family(name)->architecture, name);
}

TEST(Families, ALlamaConfigIsReadWhole) {
  const auto config = read(read_llama, llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->vocab_size, 512);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 172);
  EXPECT_EQ(config->num_layers, 5);
  EXPECT_EQ(config->attention.num_heads, 8);
  EXPECT_EQ(config->attention.num_kv_heads, 4);
  EXPECT_EQ(config->attention.head_dim, 8);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->positions.kind, PositionKind::rotary);
  EXPECT_EQ(config->positions.rotary.rotary_dim, 8);
  EXPECT_EQ(config->positions.rotary.theta, 500000.0);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_FALSE(config->attention_bias);
}

TEST(Families, AbsentAndNullKeysTakeTheDefaultsOfTransformers) {
  auto source = llama();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings"}) {
    source.erase(key);
  }
  source["head_dim"] = nullptr;
  source["rope_scaling"] = nullptr;
  const auto config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.num_kv_heads, 8);
  EXPECT_EQ(config->attention.head_dim, 8);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_EQ(config->positions.rotary.theta, 10000.0);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(Families, HeadDimNeedNotFollowFromHiddenSize) {
  auto source = llama();
  source["hidden_size"] = 60;
  source["head_dim"] = 16;
  const auto config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.head_dim, 16);
}

TEST(Families, RopeScalingIsReadFromOlderAndNewerFiles) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  auto config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.scaling.type, RopeScaling::Type::linear);
  EXPECT_EQ(config->positions.rotary.scaling.factor, 2.5);
  EXPECT_EQ(config->positions.rotary.theta, 500000.0);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 1e4},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.scaling.type, RopeScaling::Type::llama3);
  EXPECT_EQ(config->positions.rotary.scaling.original_max_position_embeddings, 64);
  EXPECT_EQ(config->positions.rotary.theta, 1e4);

  source["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000000.0}};
  config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.theta, 1000000.0);
}

TEST(Families, YarnIsReadWithTheDefaultsOfTransformers) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  auto config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  const RopeScaling& scaling = config->positions.rotary.scaling;
  EXPECT_EQ(scaling.type, RopeScaling::Type::yarn);
  EXPECT_EQ(scaling.original_max_position_embeddings, 512);
  EXPECT_EQ(scaling.beta_fast, 32.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
  EXPECT_TRUE(scaling.truncate);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 1.138629436111989);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(limit_of(*config), 2048);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "yarn"},  {"original_max_position_embeddings", 128},
                               {"beta_fast", 20.0},    {"beta_slow", 2.0},
                               {"truncate", false},    {"mscale", 0.7},
                               {"mscale_all_dim", 1.3}};
  config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.scaling.factor, 4.0) << "512 / 128";
  EXPECT_FALSE(config->positions.rotary.scaling.truncate);
  EXPECT_DOUBLE_EQ(config->positions.rotary.scaling.attention_factor, 0.9295234923939468);
  EXPECT_EQ(limit_of(*config), 512);

  source["rope_parameters"]["attention_factor"] = 0.9;
  source["original_max_position_embeddings"] = 256;
  config = read(read_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.scaling.original_max_position_embeddings, 256) << "beside the scaling it wins";
  EXPECT_EQ(config->positions.rotary.scaling.attention_factor, 0.9);
}

TEST(Families, LinearAndDynamicScalingReachFurtherThanTheDefaultContext) {
  auto source = llama();
  for (const char* type : {"linear", "dynamic"}) {
    source["rope_scaling"] = {{"type", type}, {"factor", 2.5}};
    const auto config = read(read_llama, source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->max_position_embeddings, 512);
    EXPECT_EQ(limit_of(*config), 1280);
  }
  source["rope_scaling"] = nullptr;
  EXPECT_EQ(limit_of(*read(read_llama, source)), 512);
}

TEST(Families, MistralHasASlidingWindowInEveryLayer) {
  auto source = llama();
  source["sliding_window"] = 32;
  auto config = read(read_mistral, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.window, 32);
  source["sliding_window"] = nullptr;
  config = read(read_mistral, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->attention.window, 0);
}

TEST(Families, ASlidingWindowThatIsNotMentionedIsThatOfTransformers) {
  const auto mistral = read(read_mistral, llama());
  ASSERT_TRUE(mistral) << mistral.error().message;
  EXPECT_EQ(mistral->attention.window, 4096);
  for (auto* const family : {read_qwen2, read_qwen3}) {
    auto source = llama();
    EXPECT_EQ(read(family, source)->attention.window, 0);
    source["use_sliding_window"] = true;
    source["max_window_layers"] = 0;
    EXPECT_EQ(read(family, source)->attention.window, 4096);
    source["sliding_window"] = nullptr;
    EXPECT_EQ(read(family, source)->attention.window, 0);
  }
}

TEST(Families, QwenMayGiveAWindowToSomeLayersOnly) {
  auto source = llama();
  source["sliding_window"] = 32;
  source["use_sliding_window"] = false;
  auto config = read(read_qwen2, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->attention_bias);
  EXPECT_FALSE(config->attention_output_bias);
  EXPECT_EQ(config->attention.window, 0);
  EXPECT_THAT(config->layer_windows, ElementsAre());

  source["use_sliding_window"] = true;
  source["max_window_layers"] = 3;
  config = read(read_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->attention.window, 0);
  EXPECT_THAT(config->layer_windows, ElementsAre(0, 0, 0, 32, 32));

  source["max_window_layers"] = 0;
  config = read(read_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->attention.window, 32);
  EXPECT_THAT(config->layer_windows, ElementsAre());

  source["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention", "full_attention"};
  config = read(read_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_THAT(config->layer_windows, ElementsAre(0, 32, 0, 0, 0));

  source["layer_types"] = {"full_attention"};
  config = read(read_qwen2, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "layer_types");
  EXPECT_EQ(config.error().message, "config.json: layer_types: must be an array of 5 strings");
  source["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention", "full_attention"};
  config = read(read_qwen2, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_EQ(config.error().message,
            "config.json: layer_types: \"linear_attention\" is not supported (full_attention, sliding_attention)");
  source["layer_types"] = {"full_attention", 3, "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(read(read_qwen2, source).error().code, ErrorCode::unsupported);
}

TEST(Families, Qwen3HasHeadsOf128UnlessItSaysOtherwise) {
  const auto config = read(read_qwen3, llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.head_dim, 128);
  EXPECT_TRUE(config->head_norms);
  EXPECT_FALSE(config->attention_bias);
}

TEST(Families, Phi3TakesTheDefaultsOfTransformersAndAWindowOnlyWhereOneIsGiven) {
  auto source = llama();
  source.erase("rms_norm_eps");
  auto config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_STREQ(config->packed_qkv, "qkv_proj");
  EXPECT_STREQ(config->packed_gate_up, "gate_up_proj");
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->attention.window, 0);
  EXPECT_EQ(config->positions.rotary.rotary_dim, 8);
  source["sliding_window"] = 2047;
  config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.window, 2047);
}

TEST(Families, Phi3MayTurnAPartOfEachHead) {
  auto source = llama();
  source["head_dim"] = 96;
  source["partial_rotary_factor"] = 0.75;
  auto config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->attention.head_dim, 96);
  EXPECT_EQ(config->positions.rotary.rotary_dim, 72);
  source["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.rotary_dim, 48) << "in the object it wins";

  source.erase("rope_parameters");
  source["head_dim"] = 100;
  source["partial_rotary_factor"] = 58.0 / 100.0;
  config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.rotary_dim, 58) << "which is 57.99.. in floating point";
  source["partial_rotary_factor"] = 0.245;
  config = read(read_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.rotary.rotary_dim, 24) << "rounded down, as in transformers";

  source["head_dim"] = 96;
  for (const double part : {0.01, 0.33, 1.5}) {
    source["partial_rotary_factor"] = part;
    EXPECT_EQ(read(read_phi3, source).error().param, "partial_rotary_factor") << part;
  }
  source["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(read_llama, source).error().code, ErrorCode::unsupported);
}

TEST(Families, Phi3RefusesEveryRopeScaling) {
  auto source = llama();
  for (const char* type : {"longrope", "su", "yarn", "linear"}) {
    source["rope_scaling"] = {{"type", type}, {"factor", 4.0}};
    const auto config = read(read_phi3, source);
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.error().code, ErrorCode::unsupported);
    EXPECT_EQ(config.error().param, "rope_scaling");
  }
}

/// Returns the keys of a published Baichuan config that distinguish the models.
json baichuan(std::int64_t hidden, std::int64_t heads, std::int64_t vocab, const char* positions_key) {
  auto source = llama();
  for (const char* key : {"num_key_value_heads", "max_position_embeddings", "rope_theta", "tie_word_embeddings"}) {
    source.erase(key);
  }
  source["hidden_size"] = hidden;
  source["num_attention_heads"] = heads;
  source["vocab_size"] = vocab;
  source[positions_key] = 4096;
  return source;
}

TEST(Families, BaichuanModelsAreToldApartByNameAndSizes) {
  struct Published {
    GatedDecoderConfig (*family)(ConfigSource&);
    json source;
    PositionKind positions;
    bool normalized_head;
  };
  const std::vector<Published> table = {
      {read_baichuan_7b, baichuan(4096, 32, 64000, "max_position_embeddings"), PositionKind::rotary, false},
      {read_baichuan, baichuan(5120, 40, 64000, "model_max_length"), PositionKind::alibi, false},
      {read_baichuan, baichuan(4096, 32, 125696, "max_position_embeddings"), PositionKind::rotary, true},
      {read_baichuan, baichuan(5120, 40, 125696, "model_max_length"), PositionKind::alibi, true},
  };
  for (const auto& [family, source, positions, normalized_head] : table) {
    const auto config = read(family, source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->positions.kind, positions) << source;
    EXPECT_EQ(config->normalized_head, normalized_head) << source;
    EXPECT_EQ(config->max_position_embeddings, 4096);
    EXPECT_EQ(config->attention.num_kv_heads, config->attention.num_heads);
    EXPECT_EQ(config->attention.head_dim, 128);
  }
}

TEST(Families, BaichuanModelsOfOtherSizesSayWhatTheyAre) {
  auto source = baichuan(64, 8, 512, "model_max_length");
  source["position_embedding"] = "ROPE";
  source["norm_head"] = true;
  auto config = read(read_baichuan, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->positions.kind, PositionKind::rotary);
  EXPECT_TRUE(config->normalized_head);

  source["position_embedding"] = "LEARNED";
  config = read(read_baichuan, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, "config.json: position_embedding: must be \"ROPE\" or \"ALIBI\", not \"LEARNED\"");

  source = baichuan(64, 8, 512, "model_max_length");
  source.erase("model_max_length");
  config = read(read_baichuan, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "max_position_embeddings");
}

}  // namespace
}  // namespace pagoda::models
