#include "engine/models/gated_decoder.hpp"

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/measured_weights.hpp"
#include "tests/engine/models/zero_weights.hpp"
#include "tests/support/cpu_device.hpp"

namespace pagoda::models {
namespace {

using test::cpu_device;
using test::ZeroWeights;
using testing::ElementsAre;
using testing::HasSubstr;

GatedDecoderConfig small_llama() {
  GatedDecoderConfig config;
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 2;
  config.max_position_embeddings = 64;
  config.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  config.positions.rotary.rotary_dim = 6;
  return config;
}

constexpr layers::ModelLimits kGatedLimits{.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 64};

Result<std::unique_ptr<Model>> create(const GatedDecoderConfig& config, const weights::WeightSource& source,
                                      const layers::ModelLimits& limits = kGatedLimits) {
  return create_model(spec_of(config), source, cpu_device(1), limits);
}

TEST(GatedDecoder, MorePositionsThanTheModelHasAreRefused) {
  const auto model = create(small_llama(), ZeroWeights(), {.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 65});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_EQ(model.error().message, "max_model_len: 65 is not between 1 and the model's 64 positions");
}

TEST(GatedDecoder, EveryTensorThatAModelNeedsIsAskedForByNameAndShape) {
  const ZeroWeights source;
  auto config = small_llama();
  config.attention_bias = config.attention_output_bias = true;
  ASSERT_TRUE(create(config, source));
  const auto& asked = source.asked();
  EXPECT_EQ(asked.size(), 3 + 2 * (9 + 4));
  EXPECT_THAT(asked.at("model.embed_tokens.weight"), ElementsAre(50, 16));
  EXPECT_THAT(asked.at("lm_head.weight"), ElementsAre(50, 16));
  EXPECT_THAT(asked.at("model.norm.weight"), ElementsAre(16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.q_proj.weight"), ElementsAre(24, 16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.v_proj.weight"), ElementsAre(12, 16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.k_proj.bias"), ElementsAre(12));
  EXPECT_THAT(asked.at("model.layers.0.self_attn.o_proj.weight"), ElementsAre(16, 24));
  EXPECT_THAT(asked.at("model.layers.0.mlp.down_proj.weight"), ElementsAre(16, 24));

  for (const auto& [name, shape] : asked) {
    const auto model = create(config, ZeroWeights(name));
    ASSERT_FALSE(model) << name;
    EXPECT_EQ(model.error().code, ErrorCode::bad_file);
    EXPECT_THAT(model.error().message, HasSubstr(name));
  }
}

TEST(GatedDecoder, ATiedHeadNeedsNoWeightOfItsOwn) {
  auto config = small_llama();
  config.tie_word_embeddings = true;
  EXPECT_TRUE(create(config, ZeroWeights("lm_head.weight")));
}

TEST(GatedDecoder, QueriesKeysAndValuesMayComeFromOneWeightAndTheHeadFromANormalisedOne) {
  const ZeroWeights source;
  auto config = small_llama();
  config.attention.num_kv_heads = config.attention.num_heads;
  config.positions = {.kind = layers::PositionKind::alibi, .rotary = {}, .num_heads = 4};
  config.packed_qkv = "W_pack";
  config.normalized_head = true;
  const auto model = create(config, source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(source.asked().size(), 3 + 2 * 7);
  EXPECT_THAT(source.asked().at("model.layers.1.self_attn.W_pack.weight"), ElementsAre(72, 16));
  EXPECT_EQ(create(config, ZeroWeights("lm_head.weight")).error().code, ErrorCode::bad_file);
}

TEST(GatedDecoder, GateAndValuesMayComeFromOneWeight) {
  const ZeroWeights source;
  auto config = small_llama();
  config.packed_gate_up = "gate_up_proj";
  const auto model = create(config, source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(source.asked().size(), 3 + 2 * 8);
  EXPECT_THAT(source.asked().at("model.layers.1.mlp.gate_up_proj.weight"), ElementsAre(48, 16));
}

/// The MLP of a family without Llama's MLP: a single projection.
class OneProjection final : public layers::Mlp {
 public:
  explicit OneProjection(layers::Linear linear) : linear_(std::move(linear)) {}
  DType input_type(const layers::ForwardPass& pass) const override { return linear_.input_type(pass); }
  std::vector<std::int64_t> work_widths() const override { return {1000}; }
  void run(layers::ForwardPass& pass, const layers::Activations&, const layers::Rows& in, float* out,
           layers::Accumulate accumulate) const override {
    linear_(pass, in, pass.num_tokens(), out, accumulate);
  }

 private:
  layers::Linear linear_;
};

TEST(GatedDecoder, AFamilyChoosesItsMlpAndTheMemoryFollows) {
  const ZeroWeights source;
  auto config = small_llama();
  config.load_mlp = [](const layers::WeightLoader& layer, std::int64_t index) {
    return std::make_unique<OneProjection>(layers::Linear(layer, {index == 0 ? "first" : "other", 16}, 16, false));
  };
  const auto model = spec_of(config).build(source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(source.asked().contains("model.layers.0.first.weight"));
  EXPECT_TRUE(source.asked().contains("model.layers.1.other.weight"));
  EXPECT_FALSE(source.asked().contains("model.layers.0.mlp.down_proj.weight"));
  const auto usual = spec_of(small_llama()).build(source);
  ASSERT_TRUE(usual);
  const auto bytes = [](const Model& m) { return m.memory(kGatedLimits, false).activation_bytes; };
  EXPECT_EQ(bytes(**model) - bytes(**usual), 8 * (1000 - (2 * 24 + 24)) * 4);
}

TEST(GatedDecoder, AStepLargerThanTheModelsLimitsIsAnInternalError) {
  const ZeroWeights source;
  const auto device = cpu_device(1);
  auto model = create_model(spec_of(small_llama()), source, device, kGatedLimits);
  ASSERT_TRUE(model) << model.error().message;
  const auto stream = device->create_stream("test").value();
  auto status = (*model)->run(*stream, {.num_tokens = 9}, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_THAT(status.error().message, HasSubstr("a step of 9 tokens"));
  status = (*model)->logits(*stream, nullptr, 5, nullptr);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("logits of 5 rows"));
}

TEST(GatedDecoder, ItsMemoryIsKnownBeforeItIsTaken) {
  const ZeroWeights source;
  const auto spec = spec_of(small_llama());
  const weights::MeasuredWeights measured(source, {});
  const auto model = spec.build(measured);
  ASSERT_TRUE(model) << model.error().message;
  const std::int64_t layer = 24 * 16 + 2 * 12 * 16 + 16 * 24 + 3 * 24 * 16 + 2 * 16;
  EXPECT_EQ(measured.loaded_bytes(), (2 * layer + 2 * 50 * 16 + 16) * 4);
  EXPECT_EQ(measured.copied_bytes(), 0);
  EXPECT_GE((*model)->memory(kGatedLimits, false).activation_bytes, 8 * (16 + 16 + 3 * 24) * 4);
  EXPECT_EQ(
      (*model)->memory(kGatedLimits, true).activation_bytes - (*model)->memory(kGatedLimits, false).activation_bytes,
      8 * 16 * 2);
  EXPECT_EQ((*model)->memory(kGatedLimits, false).position_bytes, 64 * 6 * 4);
}

TEST(GatedDecoder, ItsKvLiesInOneGroupOfAllLayers) {
  auto config = small_llama();
  const auto spec = spec_of(config);
  const auto layout = spec.kv_layout(4, DType::bf16);
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.only().kind, KvKind::full);
  EXPECT_EQ(layout.only().num_layers, 2);
  EXPECT_EQ(layout.only().block_size, 4);
  EXPECT_EQ(layout.block_bytes(), 2 * 2 * 4 * 2 * 6 * 2);
  config.attention.window = 32;
  EXPECT_EQ(spec_of(config).kv_layout(4, DType::bf16).only().kind, KvKind::window);
  EXPECT_EQ(spec_of(config).kv_layout(4, DType::bf16).only().window, 32);
}

TEST(GatedDecoder, BlocksOfInt8HoldTheirScales) {
  auto config = small_llama();
  config.attention.head_dim = 16;
  const std::int64_t heads = config.num_layers * config.attention.num_kv_heads;
  EXPECT_EQ(spec_of(config).kv_layout(16, DType::fp8_e4m3).block_bytes(), 2 * heads * 16 * 16);
  EXPECT_EQ(spec_of(config).kv_layout(16, DType::int8).block_bytes(), 2 * heads * 16 * (16 + 4));
}

}  // namespace
}  // namespace pagoda::models
