#include "engine/models/llama_decoder.hpp"

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/measured_weights.hpp"
#include "tests/engine/models/described.hpp"
#include "tests/engine/models/zero_weights.hpp"
#include "tests/support/cpu_device.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::cpu_device;
using test::described;
using test::ZeroWeights;
using testing::ElementsAre;
using testing::HasSubstr;

json small_llama(const json& more = json::object()) {
  json source = {{"vocab_size", 50},
                 {"hidden_size", 16},
                 {"intermediate_size", 24},
                 {"num_hidden_layers", 2},
                 {"max_position_embeddings", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 6}};
  source.update(more);
  return source;
}

constexpr layers::ModelLimits kLlamaLimits{.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 64};

Result<std::unique_ptr<Model>> create(const ModelSpec& spec, const weights::WeightSource& source,
                                      const layers::ModelLimits& limits = kLlamaLimits) {
  return create_model(spec, source, cpu_device(1), limits);
}

ModelSpec small_model(const json& more = json::object()) {
  return described(describe_llama, small_llama(more));
}

TEST(LlamaDecoder, MorePositionsThanTheModelHasAreRefused) {
  const auto model = create(small_model(), ZeroWeights(), {.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 65});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_EQ(model.error().message, "max_model_len: 65 is not between 1 and the model's 64 positions");
}

TEST(LlamaDecoder, EveryTensorThatAModelNeedsIsAskedForByNameAndShape) {
  const ZeroWeights source;
  const ModelSpec spec = small_model({{"attention_bias", true}});
  ASSERT_TRUE(create(spec, source));
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
    const auto model = create(spec, ZeroWeights(name));
    ASSERT_FALSE(model) << name;
    EXPECT_EQ(model.error().code, ErrorCode::bad_file);
    EXPECT_THAT(model.error().message, HasSubstr(name));
  }
}

TEST(LlamaDecoder, ATiedHeadNeedsNoWeightOfItsOwn) {
  EXPECT_TRUE(create(small_model({{"tie_word_embeddings", true}}), ZeroWeights("lm_head.weight")));
}

TEST(LlamaDecoder, QueriesKeysAndValuesMayComeFromOneWeightAndTheHeadFromANormalisedOne) {
  const ZeroWeights source;
  const ModelSpec spec =
      described(describe_baichuan,
                small_llama({{"num_key_value_heads", 4}, {"position_embedding", "ALIBI"}, {"norm_head", true}}));
  const auto model = create(spec, source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(source.asked().size(), 3 + 2 * 7);
  EXPECT_THAT(source.asked().at("model.layers.1.self_attn.W_pack.weight"), ElementsAre(72, 16));
  EXPECT_EQ(create(spec, ZeroWeights("lm_head.weight")).error().code, ErrorCode::bad_file);
}

TEST(LlamaDecoder, GateAndValuesMayComeFromOneWeight) {
  const ZeroWeights source;
  const auto model = create(described(describe_phi3, small_llama()), source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(source.asked().size(), 3 + 2 * 6);
  EXPECT_THAT(source.asked().at("model.layers.1.self_attn.qkv_proj.weight"), ElementsAre(48, 16));
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

TEST(LlamaDecoder, AFamilyChoosesItsMlpAndTheMemoryFollows) {
  const ZeroWeights source;
  const ModelSpec usual = small_model();
  const auto load_layer = [](const layers::WeightLoader& layer, const DecoderConfig& config, std::int64_t index) {
    return llama_layer(
        layer, config, index, load_qkv(layer / "self_attn", config),
        std::make_unique<OneProjection>(layers::Linear(layer, {index == 0 ? "first" : "other", 16}, 16, false)));
  };
  const auto model = llama_decoder(usual.decoder, {.layer = load_layer}).build(source);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(source.asked().contains("model.layers.0.first.weight"));
  EXPECT_TRUE(source.asked().contains("model.layers.1.other.weight"));
  EXPECT_FALSE(source.asked().contains("model.layers.0.mlp.down_proj.weight"));
  const auto usual_model = usual.build(source);
  ASSERT_TRUE(usual_model);
  const auto bytes = [](const Model& m) { return m.memory(kLlamaLimits, false).activation_bytes; };
  EXPECT_EQ(bytes(**model) - bytes(**usual_model), 8 * (1000 - (2 * 24 + 24)) * 4);
}

TEST(LlamaDecoder, AStepLargerThanTheModelsLimitsIsAnInternalError) {
  const ZeroWeights source;
  const auto device = cpu_device(1);
  auto model = create_model(small_model(), source, device, kLlamaLimits);
  ASSERT_TRUE(model) << model.error().message;
  const auto stream = device->create_stream("test").value();
  auto status = (*model)->run(*stream, {.num_tokens = 9}, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_THAT(status.error().message, HasSubstr("a step has 9 tokens"));
  status = (*model)->logits(*stream, nullptr, 5, nullptr, nullptr);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("logits of 5 rows"));
}

TEST(LlamaDecoder, ItsMemoryIsKnownBeforeItIsTaken) {
  const ZeroWeights source;
  const ModelSpec spec = small_model();
  const weights::MeasuredWeights measured(source, {});
  const auto model = spec.build(measured);
  ASSERT_TRUE(model) << model.error().message;
  const std::int64_t layer = 24 * 16 + 2 * 12 * 16 + 16 * 24 + 3 * 24 * 16 + 2 * 16;
  EXPECT_EQ(measured.loaded_bytes(), (2 * layer + 2 * 50 * 16 + 16) * 4);
  EXPECT_EQ(measured.copied_bytes(), 0);
  EXPECT_GE((*model)->memory(kLlamaLimits, false).activation_bytes, 8 * (16 + 16 + 3 * 24) * 4);
  EXPECT_EQ(
      (*model)->memory(kLlamaLimits, true).activation_bytes - (*model)->memory(kLlamaLimits, false).activation_bytes,
      8 * 16 * 2);
  EXPECT_EQ((*model)->memory(kLlamaLimits, false).position_bytes, 64 * 6 * 4);
}

TEST(LlamaDecoder, ItsKvLiesInOneGroupOfAllLayers) {
  const auto layout = small_model().kv_layout(4, DType::bf16);
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout[0].kind, KvKind::full);
  EXPECT_EQ(layout[0].num_layers, 2);
  EXPECT_EQ(layout[0].block_size, 4);
  EXPECT_EQ(layout.block_bytes(), 2 * 2 * 4 * 2 * 6 * 2);
  const auto windowed = described(describe_mistral, small_llama({{"sliding_window", 32}})).kv_layout(4, DType::bf16);
  EXPECT_EQ(windowed[0].kind, KvKind::window);
  EXPECT_EQ(windowed[0].window, 32);
}

TEST(LlamaDecoder, BlocksOfInt8HoldTheirScales) {
  const ModelSpec spec = small_model({{"head_dim", 16}});
  constexpr std::int64_t kHeads = 2 * 2;  // layers and KV heads
  EXPECT_EQ(spec.kv_layout(16, DType::fp8_e4m3).block_bytes(), 2 * kHeads * 16 * 16);
  EXPECT_EQ(spec.kv_layout(16, DType::int8).block_bytes(), 2 * kHeads * 16 * (16 + 4));
}

}  // namespace
}  // namespace pagoda::models
