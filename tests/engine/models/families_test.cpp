#include "engine/models/families.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/models/described.hpp"

namespace pagoda::models {
namespace {

using layers::PositionKind;
using layers::RopeScaling;
using nlohmann::json;
using test::read_family;
using testing::Each;
using testing::ElementsAre;

json llama() {
  return json::parse(R"({
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": true})");
}

/// The windows of all layers.
std::vector<std::int32_t> windows_of(const ModelSpec& spec) {
  std::vector<std::int32_t> windows;
  for (const LayerShape& layer : spec.decoder.layer_shapes) windows.push_back(layer.window);
  return windows;
}

std::vector<std::int32_t> tables_of(const ModelSpec& spec) {
  std::vector<std::int32_t> tables;
  for (const LayerShape& layer : spec.decoder.layer_shapes) tables.push_back(layer.position_table);
  return tables;
}

const layers::RotaryShape& rotary_of(const Result<ModelSpec>& spec) {
  return spec->decoder.positions.front().rotary;
}

TEST(Families, AreFoundByTheirExactNames) {
  EXPECT_NE(find_family("LlamaForCausalLM"), nullptr);
  EXPECT_EQ(find_family("LlamaForCausalLm"), nullptr);
  EXPECT_THAT(known_architectures(), testing::Contains("LlamaForCausalLM"));
  EXPECT_TRUE(std::ranges::is_sorted(known_architectures()));
  for (const auto& name : known_architectures()) EXPECT_EQ(find_family(name)->architecture, name);
}

TEST(Families, AreReadFromGgufFilesByTheNamesThatTheirArchitectureHas) {
  for (const auto& name : known_architectures()) {
    const GgufArchitecture* gguf = find_family(name)->gguf;
    if (gguf == nullptr) continue;
    EXPECT_EQ(find_gguf_architecture(gguf->name), gguf) << name;
    for (const ModelNames& names : {gguf->hugging_face, gguf->hugging_face_with_window}) {
      if (names.architecture.empty()) continue;
      ASSERT_NE(find_family(names.architecture), nullptr) << names.architecture;
      EXPECT_EQ(find_family(names.architecture)->gguf, gguf) << names.architecture;
    }
  }
  EXPECT_EQ(find_gguf_architecture("opt"), nullptr);
  EXPECT_THAT(gguf_architectures(), testing::IsSupersetOf({"llama", "gemma3"}));
}

TEST(Families, ALlamaConfigIsReadWhole) {
  const auto config = read_family(describe_llama, llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->vocab_size, 512);
  EXPECT_EQ(config->decoder.hidden_size, 64);
  EXPECT_EQ(config->decoder.intermediate_size, 172);
  EXPECT_EQ(config->decoder.num_layers(), 5);
  EXPECT_EQ(config->decoder.attention.num_heads, 8);
  EXPECT_EQ(config->decoder.attention.num_kv_heads, 4);
  EXPECT_EQ(config->decoder.attention.head_dim, 8);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->decoder.norm_eps, 1e-5);
  EXPECT_EQ(config->decoder.positions.front().kind, PositionKind::rotary);
  EXPECT_EQ(rotary_of(config).rotary_dim, 8);
  EXPECT_EQ(rotary_of(config).theta, 500000.0);
  EXPECT_TRUE(config->decoder.tie_word_embeddings);
}

TEST(Families, AbsentAndNullKeysTakeTheDefaultsOfTransformers) {
  auto source = llama();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings"}) {
    source.erase(key);
  }
  source["head_dim"] = nullptr;
  source["rope_scaling"] = nullptr;
  const auto config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.num_kv_heads, 8);
  EXPECT_EQ(config->decoder.attention.head_dim, 8);
  EXPECT_EQ(config->decoder.norm_eps, 1e-6);
  EXPECT_EQ(rotary_of(config).theta, 10000.0);
  EXPECT_FALSE(config->decoder.tie_word_embeddings);
}

TEST(Families, HeadDimNeedNotFollowFromHiddenSize) {
  auto source = llama();
  source["hidden_size"] = 60;
  source["head_dim"] = 16;
  const auto config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.head_dim, 16);
}

TEST(Families, RopeScalingIsReadFromOlderAndNewerFiles) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  auto config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).scaling.type, RopeScaling::Type::linear);
  EXPECT_EQ(rotary_of(config).scaling.factor, 2.5);
  EXPECT_EQ(rotary_of(config).theta, 500000.0);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 1e4},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).scaling.type, RopeScaling::Type::llama3);
  EXPECT_EQ(rotary_of(config).scaling.original_max_position_embeddings, 64);
  EXPECT_EQ(rotary_of(config).theta, 1e4);

  source["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000000.0}};
  config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).theta, 1000000.0);

  source["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};  // replaces rope_parameters, as in transformers
  config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).scaling.type, RopeScaling::Type::linear);
  EXPECT_EQ(rotary_of(config).theta, 500000.0);
  source.erase("rope_theta");
  config = read_family(describe_llama, source);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("rope_scaling"), std::string::npos) << config.error().message;
}

TEST(Families, YarnIsReadWithTheDefaultsOfTransformers) {
  auto source = llama();
  source["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  auto config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  const RopeScaling& scaling = rotary_of(config).scaling;
  EXPECT_EQ(scaling.type, RopeScaling::Type::yarn);
  EXPECT_EQ(scaling.original_max_position_embeddings, 512);
  EXPECT_EQ(scaling.beta_fast, 32.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
  EXPECT_TRUE(scaling.truncate);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 1.138629436111989);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->position_limit, 2048);

  source.erase("rope_scaling");
  source["rope_parameters"] = {{"rope_type", "yarn"},  {"original_max_position_embeddings", 128},
                               {"beta_fast", 20.0},    {"beta_slow", 2.0},
                               {"truncate", false},    {"mscale", 0.7},
                               {"mscale_all_dim", 1.3}};
  config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).scaling.factor, 4.0) << "512 / 128";
  EXPECT_FALSE(rotary_of(config).scaling.truncate);
  EXPECT_DOUBLE_EQ(rotary_of(config).scaling.attention_factor, 0.9295234923939468);
  EXPECT_EQ(config->position_limit, 512);

  source["rope_parameters"]["attention_factor"] = 0.9;
  source["original_max_position_embeddings"] = 256;
  config = read_family(describe_llama, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).scaling.original_max_position_embeddings, 256) << "beside the scaling it wins";
  EXPECT_EQ(rotary_of(config).scaling.attention_factor, 0.9);
}

TEST(Families, LinearAndDynamicScalingReachFurtherThanTheDefaultContext) {
  auto source = llama();
  for (const char* type : {"linear", "dynamic"}) {
    source["rope_scaling"] = {{"type", type}, {"factor", 2.5}};
    const auto config = read_family(describe_llama, source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->max_position_embeddings, 512);
    EXPECT_EQ(config->position_limit, 1280);
  }
  source["rope_scaling"] = nullptr;
  EXPECT_EQ(read_family(describe_llama, source)->position_limit, 512);
}

TEST(Families, MistralHasASlidingWindowInEveryLayer) {
  auto source = llama();
  source["sliding_window"] = 32;
  auto config = read_family(describe_mistral, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.common_window(), 32);
  source["sliding_window"] = nullptr;
  config = read_family(describe_mistral, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->decoder.common_window(), 0);
}

TEST(Families, ASlidingWindowThatIsNotMentionedIsThatOfTransformers) {
  const auto mistral = read_family(describe_mistral, llama());
  ASSERT_TRUE(mistral) << mistral.error().message;
  EXPECT_EQ(mistral->decoder.common_window(), 4096);
  for (auto* const family : {describe_qwen2, describe_qwen3}) {
    auto source = llama();
    EXPECT_EQ(read_family(family, source)->decoder.common_window(), 0);
    source["use_sliding_window"] = true;
    source["max_window_layers"] = 0;
    EXPECT_EQ(read_family(family, source)->decoder.common_window(), 4096);
    source["sliding_window"] = nullptr;
    EXPECT_EQ(read_family(family, source)->decoder.common_window(), 0);
  }
}

TEST(Families, QwenMayGiveAWindowToSomeLayersOnly) {
  auto source = llama();
  source["sliding_window"] = 32;
  source["use_sliding_window"] = false;
  auto config = read_family(describe_qwen2, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.common_window(), 0);

  source["use_sliding_window"] = true;
  source["max_window_layers"] = 3;
  config = read_family(describe_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->decoder.common_window(), 0);
  EXPECT_THAT(windows_of(*config), ElementsAre(0, 0, 0, 32, 32));

  source["max_window_layers"] = 0;
  config = read_family(describe_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->decoder.common_window(), 32);

  source["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention", "full_attention"};
  config = read_family(describe_qwen2, source);
  ASSERT_TRUE(config);
  EXPECT_THAT(windows_of(*config), ElementsAre(0, 32, 0, 0, 0));

  source["layer_types"] = {"full_attention"};
  config = read_family(describe_qwen2, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "layer_types");
  EXPECT_EQ(config.error().message, "config.json: layer_types: must be an array of 5 strings");
  source["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention", "full_attention"};
  config = read_family(describe_qwen2, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_EQ(config.error().message,
            "config.json: layer_types: \"linear_attention\" is not supported (full_attention, sliding_attention)");
  source["layer_types"] = {"full_attention", 3, "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(read_family(describe_qwen2, source).error().code, ErrorCode::unsupported);
}

TEST(Families, Qwen3HasHeadsOf128UnlessItSaysOtherwise) {
  const auto config = read_family(describe_qwen3, llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.head_dim, 128);
}

TEST(Families, Phi3TakesTheDefaultsOfTransformersAndAWindowOnlyWhereOneIsGiven) {
  auto source = llama();
  source.erase("rms_norm_eps");
  auto config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.norm_eps, 1e-5);
  EXPECT_EQ(config->decoder.common_window(), 0);
  EXPECT_EQ(rotary_of(config).rotary_dim, 8);
  source["sliding_window"] = 2047;
  config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.common_window(), 2047);
}

TEST(Families, Phi3MayTurnAPartOfEachHead) {
  auto source = llama();
  source["head_dim"] = 96;
  source["partial_rotary_factor"] = 0.75;
  auto config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.head_dim, 96);
  EXPECT_EQ(rotary_of(config).rotary_dim, 72);
  source["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).rotary_dim, 48) << "in the object it wins";

  source.erase("rope_parameters");
  source["head_dim"] = 100;
  source["partial_rotary_factor"] = 58.0 / 100.0;
  config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).rotary_dim, 58) << "which is 57.99.. in floating point";
  source["partial_rotary_factor"] = 0.245;
  config = read_family(describe_phi3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).rotary_dim, 24) << "rounded down, as in transformers";

  source["head_dim"] = 96;
  for (const double part : {0.01, 0.33, 1.5}) {
    source["partial_rotary_factor"] = part;
    EXPECT_EQ(read_family(describe_phi3, source).error().param, "partial_rotary_factor") << part;
  }
  source["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read_family(describe_llama, source).error().code, ErrorCode::unsupported);
}

TEST(Families, Phi3RefusesEveryRopeScaling) {
  auto source = llama();
  for (const char* type : {"longrope", "su", "yarn", "linear"}) {
    source["rope_scaling"] = {{"type", type}, {"factor", 4.0}};
    const auto config = read_family(describe_phi3, source);
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.error().code, ErrorCode::unsupported);
    EXPECT_EQ(config.error().param, "rope_scaling");
  }
}

TEST(Families, MinistralHasAWindowInTheLayersThatItMarks) {
  auto source = llama();
  source["sliding_window"] = 32;
  source["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention"};
  auto config = read_family(describe_ministral, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(32, 0, 32, 0, 32));
  EXPECT_EQ(find_family("MinistralForCausalLM")->describe, describe_ministral);

  source.erase("layer_types");
  config = read_family(describe_ministral, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.common_window(), 32);
}

TEST(Families, MistralIgnoresLayerTypesAsTransformersDoes) {
  auto source = llama();
  source["sliding_window"] = 32;
  source["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention"};
  const auto config = read_family(find_family("MistralForCausalLM")->describe, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), Each(32));
}

TEST(Families, LayerTypesOfSmolLm3DecideWhateverUseSlidingWindowSays) {
  auto source = llama();
  source["sliding_window"] = 64;
  source["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention",
                           "full_attention"};
  for (const bool use_sliding_window : {false, true}) {
    source["use_sliding_window"] = use_sliding_window;
    const auto config = read_family(describe_smollm3, source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_THAT(windows_of(*config), ElementsAre(64, 0, 0, 64, 0));
  }
}

TEST(Families, SmolLm3HasNoPositionsInEveryFourthLayerOrInThoseThatItLists) {
  auto source = llama();
  source.erase("rope_theta");
  auto config = read_family(describe_smollm3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).theta, 2e6);
  EXPECT_THAT(tables_of(*config), ElementsAre(0, 0, 0, layers::kNoPositions, 0));
  EXPECT_THAT(windows_of(*config), Each(0));

  source["no_rope_layers"] = {0, 1, 1, 0, 1};
  source["use_sliding_window"] = true;
  source["sliding_window"] = 64;
  config = read_family(describe_smollm3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(tables_of(*config), ElementsAre(layers::kNoPositions, 0, 0, layers::kNoPositions, 0));
  EXPECT_THAT(windows_of(*config), ElementsAre(64, 0, 0, 64, 0));

  source["no_rope_layers"] = {0, 1, 1, 0, 1, 0, 0};
  config = read_family(describe_smollm3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(tables_of(*config), ElementsAre(layers::kNoPositions, 0, 0, layers::kNoPositions, 0));

  source["no_rope_layers"] = {0, 1};
  EXPECT_EQ(read_family(describe_smollm3, source).error().param, "no_rope_layers");
}

TEST(Families, Gemma2IgnoresSlidingWindowPatternAsTransformersDoes) {
  auto source = llama();
  source["sliding_window"] = 32;
  source["sliding_window_pattern"] = 4;
  auto config = read_family(describe_gemma2, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(32, 0, 32, 0, 32));

  source["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention"};
  config = read_family(describe_gemma2, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(0, 0, 32, 0, 32));
}

TEST(Families, Gemma2AlternatesWindowsAndCapsScores) {
  const auto config = read_family(describe_gemma2, llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(4096, 0, 4096, 0, 4096));
  EXPECT_THAT(config->facts, testing::IsSupersetOf({Fact{"sliding_window", std::int64_t{4096}},
                                                    Fact{"layers_with_window", std::int64_t{3}}}));
  EXPECT_EQ(config->decoder.attention.head_dim, 256);
  EXPECT_EQ(config->decoder.attention.scale, 1.0 / 16.0);
  EXPECT_EQ(config->decoder.attention.softcap, 50.0);
  EXPECT_EQ(config->decoder.activation, kernels::Activation::gelu_tanh);

  auto source = llama();
  source["attn_logit_softcapping"] = nullptr;
  source["query_pre_attn_scalar"] = 64;
  const auto uncapped = read_family(describe_gemma2, source);
  ASSERT_TRUE(uncapped) << uncapped.error().message;
  EXPECT_EQ(uncapped->decoder.attention.softcap, 0.0);
  EXPECT_EQ(uncapped->decoder.attention.scale, 0.125);
}

TEST(Families, Gemma3ReadsBothFormsOfItsTwoThetas) {
  auto source = llama();
  source["num_hidden_layers"] = 7;
  source["sliding_window"] = 512;
  source["rope_local_base_freq"] = 20000.0;
  source["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  auto config = read_family(describe_gemma3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(512, 512, 512, 512, 512, 0, 512));
  EXPECT_THAT(tables_of(*config), ElementsAre(1, 1, 1, 1, 1, 0, 1));
  ASSERT_EQ(config->decoder.positions.size(), 2U);
  EXPECT_EQ(rotary_of(config).theta, 500000.0);
  EXPECT_EQ(rotary_of(config).scaling.factor, 8.0);
  EXPECT_EQ(config->decoder.positions[1].rotary.theta, 20000.0);
  EXPECT_EQ(config->decoder.positions[1].rotary.scaling.type, RopeScaling::Type::none);
  EXPECT_EQ(config->decoder.attention.softcap, 0.0);

  source.erase("rope_scaling");
  source["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 3e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 30000.0}}},
  };
  config = read_family(describe_gemma3, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rotary_of(config).theta, 3e6);
  EXPECT_EQ(rotary_of(config).scaling.factor, 4.0);
  EXPECT_EQ(config->decoder.positions[1].rotary.theta, 30000.0);

  source["use_bidirectional_attention"] = true;
  EXPECT_EQ(read_family(describe_gemma3, source).error().code, ErrorCode::unsupported);
}

TEST(Families, Gemma3WithImagesHasTheSizesOfItsClassForItsText) {
  json source = {{"text_config",
                  {{"hidden_size", 2560},
                   {"intermediate_size", 10240},
                   {"num_hidden_layers", 34},
                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                   {"sliding_window", 1024}}}};
  auto config = read_family(describe_gemma3_with_images, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->max_position_embeddings, 131072);
  EXPECT_EQ(config->decoder.attention.num_heads, 8);
  EXPECT_EQ(config->decoder.attention.num_kv_heads, 4);
  EXPECT_EQ(config->decoder.attention.head_dim, 256);
  EXPECT_EQ(rotary_of(config).theta, 1e6);
  EXPECT_EQ(rotary_of(config).scaling.factor, 8.0);
  EXPECT_EQ(config->decoder.num_layers_with_window(), 29);
  EXPECT_TRUE(config->tie_word_embeddings);

  source["tie_word_embeddings"] = false;
  EXPECT_FALSE(read_family(describe_gemma3_with_images, source)->tie_word_embeddings);
  source["text_config"].erase("hidden_size");
  EXPECT_EQ(read_family(describe_gemma3_with_images, source).error().message,
            "config.json: text_config: hidden_size: is missing");
  source.erase("text_config");
  EXPECT_FALSE(read_family(describe_gemma3_with_images, source));
}

TEST(Families, Cohere2RotatesOnlyTheLayersWithAWindow) {
  auto source = llama();
  source["sliding_window"] = 128;
  const auto config = read_family(describe_cohere2, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(windows_of(*config), ElementsAre(128, 128, 128, 0, 128));
  EXPECT_THAT(tables_of(*config), ElementsAre(0, 0, 0, layers::kNoPositions, 0));
  EXPECT_TRUE(rotary_of(config).interleaved);
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

TEST(Families, BaichuanModelsAreDistinguishedByNameAndSizes) {
  struct Published {
    test::Describe family;
    json source;
    PositionKind positions;
    bool normalized_head;
  };
  const std::vector<Published> table = {
      {describe_baichuan_7b, baichuan(4096, 32, 64000, "max_position_embeddings"), PositionKind::rotary, false},
      {describe_baichuan, baichuan(5120, 40, 64000, "model_max_length"), PositionKind::alibi, false},
      {describe_baichuan, baichuan(4096, 32, 125696, "max_position_embeddings"), PositionKind::rotary, true},
      {describe_baichuan, baichuan(5120, 40, 125696, "model_max_length"), PositionKind::alibi, true},
  };
  for (const auto& [family, source, positions, normalized_head] : table) {
    const auto config = read_family(family, source);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->decoder.positions.front().kind, positions) << source;
    EXPECT_EQ(std::ranges::count(config->facts, Fact{"normalized_head", true}), normalized_head ? 1 : 0) << source;
    EXPECT_EQ(config->max_position_embeddings, 4096);
    EXPECT_EQ(config->decoder.attention.num_kv_heads, config->decoder.attention.num_heads);
    EXPECT_EQ(config->decoder.attention.head_dim, 128);
  }
}

TEST(Families, BaichuanModelsOfOtherSizesSayWhatTheyAre) {
  auto source = baichuan(64, 8, 512, "model_max_length");
  source["position_embedding"] = "ROPE";
  source["norm_head"] = true;
  auto config = read_family(describe_baichuan, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.positions.front().kind, PositionKind::rotary);
  EXPECT_THAT(config->facts, testing::Contains(Fact{"normalized_head", true}));

  source["position_embedding"] = "LEARNED";
  config = read_family(describe_baichuan, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, "config.json: position_embedding: must be \"ROPE\" or \"ALIBI\", not \"LEARNED\"");

  source = baichuan(64, 8, 512, "model_max_length");
  source.erase("model_max_length");
  config = read_family(describe_baichuan, source);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().param, "max_position_embeddings");
}

}  // namespace
}  // namespace pagoda::models
