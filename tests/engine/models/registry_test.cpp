#include "engine/models/registry.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models/memory_plan.hpp"

namespace pagoda::models {
namespace {

using testing::HasSubstr;

/// Gives every tensor that is asked for, all zero, except one that is missing.
class ZeroWeights final : public weights::WeightSource {
 public:
  explicit ZeroWeights(std::string missing = {}) : missing_(std::move(missing)), zeros_(1 << 14) {}

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    if (name == missing_) return fail(ErrorCode::bad_file, "tensor \"" + missing_ + "\" is missing");
    weights::WeightTensor tensor{std::string(name), DType::f32, shape, zeros_.data()};
    EXPECT_LE(tensor.elements(), static_cast<std::int64_t>(zeros_.size()));
    asked_[tensor.name] = shape;
    return tensor;
  }
  bool contains(std::string_view name) const override { return name != missing_; }

  const std::map<std::string, std::vector<std::int64_t>>& asked() const { return asked_; }

 private:
  std::string missing_;
  std::vector<float> zeros_;
  mutable std::map<std::string, std::vector<std::int64_t>> asked_;
};

ModelConfig small_llama() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.max_position_embeddings = 64;
  return config;
}

constexpr layers::ModelLimits kLimits{.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 64};

Result<std::unique_ptr<Model>> create(const ModelConfig& config, const weights::WeightSource& weights,
                                      const layers::ModelLimits& limits = kLimits) {
  auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""});
  if (!device) return fail(device.error());
  return create_model(config, weights, *device, limits);
}

TEST(Registry, AnArchitectureThatIsNotKnownIsNamedBesideThoseThatAre) {
  auto config = small_llama();
  config.architecture = "MambaForCausalLM";
  const auto model = create(config, ZeroWeights());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_EQ(model.error().param, "architectures");
  EXPECT_THAT(model.error().message, HasSubstr("\"MambaForCausalLM\" is not known; known are"));
  EXPECT_THAT(model.error().message, HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(known_architectures(), testing::Contains("LlamaForCausalLM"));
  EXPECT_TRUE(std::ranges::is_sorted(known_architectures()));
}

TEST(Registry, AConfigThatIsNotConsistentIsRefused) {
  auto config = small_llama();
  config.num_kv_heads = 3;
  auto model = create(config, ZeroWeights());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().param, "num_key_value_heads");
  config = small_llama();
  config.num_layers = 0;
  model = create(config, ZeroWeights());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().param, "num_hidden_layers");
}

TEST(Registry, MorePositionsThanTheModelHasAreRefused) {
  const auto model = create(small_llama(), ZeroWeights(), {.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 65});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_EQ(model.error().message, "max_model_len: 65 is not within 1 and the model's 64 positions");
}

TEST(Registry, EveryTensorThatAModelNeedsIsAskedForByNameAndShape) {
  const ZeroWeights weights;
  auto config = small_llama();
  config.attention_bias = config.attention_output_bias = true;
  ASSERT_TRUE(create(config, weights));
  const auto& asked = weights.asked();
  EXPECT_EQ(asked.size(), 3 + 2 * (9 + 4));
  EXPECT_THAT(asked.at("model.embed_tokens.weight"), testing::ElementsAre(50, 16));
  EXPECT_THAT(asked.at("lm_head.weight"), testing::ElementsAre(50, 16));
  EXPECT_THAT(asked.at("model.norm.weight"), testing::ElementsAre(16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.q_proj.weight"), testing::ElementsAre(24, 16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.v_proj.weight"), testing::ElementsAre(12, 16));
  EXPECT_THAT(asked.at("model.layers.1.self_attn.k_proj.bias"), testing::ElementsAre(12));
  EXPECT_THAT(asked.at("model.layers.0.self_attn.o_proj.weight"), testing::ElementsAre(16, 24));
  EXPECT_THAT(asked.at("model.layers.0.mlp.down_proj.weight"), testing::ElementsAre(16, 24));

  for (const auto& [name, shape] : asked) {
    const auto model = create(config, ZeroWeights(name));
    ASSERT_FALSE(model) << name;
    EXPECT_EQ(model.error().code, ErrorCode::bad_file);
    EXPECT_THAT(model.error().message, HasSubstr(name));
  }
}

TEST(Registry, ATiedHeadNeedsNoWeightOfItsOwn) {
  auto config = small_llama();
  config.tie_word_embeddings = true;
  EXPECT_TRUE(create(config, ZeroWeights("lm_head.weight")));
}

TEST(Registry, BaichuanTakesQueriesKeysAndValuesFromOneWeight) {
  const ZeroWeights weights;
  auto config = small_llama();
  config.architecture = "BaichuanForCausalLM";
  config.num_kv_heads = config.num_heads;
  config.positions = PositionKind::alibi;
  config.normalized_head = true;
  const auto model = create(config, weights);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(weights.asked().size(), 3 + 2 * 7);
  EXPECT_THAT(weights.asked().at("model.layers.1.self_attn.W_pack.weight"), testing::ElementsAre(72, 16));
  EXPECT_EQ(create(config, ZeroWeights("lm_head.weight")).error().code, ErrorCode::bad_file);
}

TEST(Registry, AStepLargerThanTheModelsLimitsIsAnInternalError) {
  const ZeroWeights weights;
  auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""});
  ASSERT_TRUE(device);
  auto model = create_model(small_llama(), weights, *device, kLimits);
  ASSERT_TRUE(model) << model.error().message;
  auto stream = (*device)->create_stream("test");
  ASSERT_TRUE(stream);
  layers::ForwardBatch batch;
  batch.num_tokens = 9;
  const auto status = (*model)->forward(**stream, batch, {}, nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_THAT(status.error().message, HasSubstr("a step of 9 tokens"));
}

TEST(MemoryPlan, BlocksOfInt8HoldTheirScales) {
  auto config = small_llama();
  config.head_dim = 16;
  const std::int64_t heads = config.num_layers * config.num_kv_heads;
  EXPECT_EQ(kv_bytes_per_block(config, DType::fp8_e4m3, 16), 2 * heads * 16 * 16);
  EXPECT_EQ(kv_bytes_per_block(config, DType::int8, 16), 2 * heads * 16 * (16 + 4));
  const auto plan = plan_memory(config, {.kv_dtype = DType::int8, .block_size = 16, .limits = kLimits});
  EXPECT_EQ(plan.kv_bytes_per_block, 2 * heads * 16 * (16 + 4));
  EXPECT_EQ(plan.kv_bytes_per_token, 2 * heads * (16 + 4));
}

TEST(MemoryPlan, EveryByteOfTheBudgetIsAccountedFor) {
  const auto config = small_llama();
  MemoryRequest request{.weight_bytes = 10000, .kv_dtype = DType::bf16, .block_size = 4, .limits = kLimits};
  const auto without_budget = plan_memory(config, request);
  EXPECT_EQ(without_budget.kv_bytes_per_token, 2 * 2 * 2 * 6 * 2);
  EXPECT_EQ(without_budget.kv_bytes_per_block, 4 * 96);
  EXPECT_EQ(without_budget.logit_bytes, 4 * 50 * 4);
  EXPECT_EQ(without_budget.position_bytes, 64 * 6 * 4);
  EXPECT_GE(without_budget.activation_bytes, 8 * (16 + 16 + 3 * 24) * 4);
  EXPECT_EQ(without_budget.num_blocks, 0);
  EXPECT_EQ(without_budget.longest_context, 0);

  request.budget_bytes = without_budget.fixed_bytes() + 3 * 384 + 383;
  auto plan = plan_memory(config, request);
  EXPECT_EQ(plan.num_blocks, 3);
  EXPECT_EQ(plan.kv_bytes(), 3 * 384);
  EXPECT_EQ(plan.longest_context, 12);

  request.budget_bytes = 1LL << 30;
  plan = plan_memory(config, request);
  EXPECT_EQ(plan.longest_context, 64);
}

}  // namespace
}  // namespace pagoda::models
