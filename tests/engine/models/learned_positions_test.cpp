#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/families.hpp"
#include "tests/engine/models/described.hpp"
#include "tests/engine/models/zero_weights.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::described;
using test::ZeroWeights;
using testing::ElementsAre;

constexpr layers::ModelLimits kSmallLimits{.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 32};

ModelSpec small_gpt2() {
  return described(describe_gpt2,
                   {{"vocab_size", 50}, {"n_embd", 16}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", 32}});
}

ModelSpec small_opt(const json& more = json::object()) {
  json source = {{"vocab_size", 50},        {"hidden_size", 16},        {"ffn_dim", 24},
                 {"num_hidden_layers", 2},  {"num_attention_heads", 2}, {"max_position_embeddings", 32},
                 {"word_embed_proj_dim", 8}};
  source.update(more);
  return described(describe_opt, source);
}

Status load(const ModelSpec& spec, const ZeroWeights& source) {
  const auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""}).value();
  const auto model = create_model(spec, source, device, kSmallLimits);
  return model ? Status() : fail(model.error());
}

TEST(LearnedPositions, Gpt2StoresItsProjectionsTransposedAndTiesTheHead) {
  const ZeroWeights source;
  ASSERT_TRUE(load(small_gpt2(), source));
  const auto& asked = source.asked();
  EXPECT_EQ(asked.size(), 2 + 2 + 2 * 12);
  EXPECT_THAT(asked.at("transformer.wpe.weight"), ElementsAre(32, 16));
  EXPECT_THAT(asked.at("transformer.h.1.attn.c_attn.weight"), ElementsAre(16, 48));
  EXPECT_THAT(asked.at("transformer.h.1.attn.c_attn.bias"), ElementsAre(48));
  EXPECT_THAT(asked.at("transformer.h.0.mlp.c_proj.weight"), ElementsAre(64, 16));
  EXPECT_FALSE(asked.contains("lm_head.weight"));
}

TEST(LearnedPositions, TheOuterModuleMayBeLeftOut) {
  const ZeroWeights gpt2("transformer.wte.weight");
  ASSERT_TRUE(load(small_gpt2(), gpt2));
  EXPECT_TRUE(gpt2.asked().contains("wte.weight"));
  EXPECT_TRUE(gpt2.asked().contains("h.0.ln_1.weight"));
  const ZeroWeights opt("model.decoder.embed_tokens.weight");
  ASSERT_TRUE(load(small_opt(), opt));
  EXPECT_TRUE(opt.asked().contains("decoder.layers.0.fc1.weight"));
}

TEST(LearnedPositions, OptProjectsAnEmbeddingOfAnotherWidthAndSkipsItsFirstPositions) {
  const ZeroWeights source;
  ASSERT_TRUE(load(small_opt({{"tie_word_embeddings", false}, {"do_layer_norm_before", false}}), source));
  const auto& asked = source.asked();
  EXPECT_THAT(asked.at("model.decoder.embed_positions.weight"), ElementsAre(34, 16));
  EXPECT_THAT(asked.at("model.decoder.embed_tokens.weight"), ElementsAre(50, 8));
  EXPECT_THAT(asked.at("model.decoder.project_in.weight"), ElementsAre(16, 8));
  EXPECT_THAT(asked.at("model.decoder.project_out.weight"), ElementsAre(8, 16));
  EXPECT_THAT(asked.at("lm_head.weight"), ElementsAre(50, 8));
  EXPECT_THAT(asked.at("model.decoder.layers.1.self_attn.k_proj.weight"), ElementsAre(16, 16));
  EXPECT_FALSE(asked.contains("model.decoder.final_layer_norm.weight"));
  EXPECT_EQ(small_opt().build(source).value()->hidden_width(), 8);
}

TEST(LearnedPositions, OptMayGoWithoutBiasesAndWithoutWeightsOfItsNorms) {
  const ZeroWeights source;
  ASSERT_TRUE(load(small_opt({{"enable_bias", false}, {"layer_norm_elementwise_affine", false}}), source));
  for (const auto& [name, shape] : source.asked()) EXPECT_FALSE(name.ends_with(".bias")) << name;
  EXPECT_FALSE(source.asked().contains("model.decoder.layers.0.self_attn_layer_norm.weight"));
}

TEST(LearnedPositions, ATensorThatIsMissingIsNamed) {
  for (const char* name : {"transformer.wpe.weight", "transformer.h.1.attn.c_attn.weight", "transformer.ln_f.bias",
                           "transformer.h.0.mlp.c_fc.bias"}) {
    const auto status = load(small_gpt2(), ZeroWeights(name));
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().code, ErrorCode::bad_file);
    EXPECT_THAT(status.error().message, testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace pagoda::models
