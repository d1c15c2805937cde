#include "engine/adapters/bound_adapter.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/adapters/dora_factors.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "engine/weights/measured_weights.hpp"
#include "tests/engine/adapters/random_adapters.hpp"
#include "tests/engine/models/described.hpp"
#include "tests/support/cpu_device.hpp"
#include "tests/support/random_model.hpp"

namespace pagoda::adapters {
namespace {

using layers::AdapterModule;
using test::cpu_device;
using test::element;
using test::RandomAdapters;
using test::RandomWeights;
using testing::HasSubstr;

models::ModelSpec llama_of_adapters() {
  return test::described(models::describe_llama, {{"vocab_size", 50},
                                                  {"hidden_size", 64},
                                                  {"intermediate_size", 96},
                                                  {"num_hidden_layers", 2},
                                                  {"max_position_embeddings", 64},
                                                  {"num_attention_heads", 4},
                                                  {"num_key_value_heads", 2},
                                                  {"mlp_bias", true}});
}

class BoundAdapterTest : public testing::Test {
 protected:
  const layers::AdapterModules& modules() const { return model_->adapter_modules(); }
  const AdapterModule& module(const std::string& name) const { return modules()[modules().find(name)]; }

  /// Expects an error about `change` that has all of `parts`.
  void expect_refused(ModuleChange change, const std::vector<std::string>& parts) {
    Adapter adapter;
    adapter.changes.push_back(std::move(change));
    expect_refused(adapter, parts);
  }
  void expect_refused(const Adapter& adapter, const std::vector<std::string>& parts) {
    const auto bound = BoundAdapter::create(adapter, modules(), *device_);
    ASSERT_FALSE(bound);
    EXPECT_EQ(bound.error().code, ErrorCode::bad_file);
    for (const std::string& part : parts) EXPECT_THAT(bound.error().message, HasSubstr(part));
  }

  static constexpr const char* kQuery = "model.layers.1.self_attn.q_proj";
  static constexpr const char* kUp = "model.layers.0.mlp.up_proj";

  std::shared_ptr<kernels::Device> device_ = cpu_device();
  RandomWeights weights_;
  std::unique_ptr<models::Model> model_ = llama_of_adapters().build(weights_).value();
  RandomAdapters random_{3};
};

TEST_F(BoundAdapterTest, AModelOffersItsLinearLayersEmbeddingAndHead) {
  EXPECT_EQ(modules().all().size(), 2 * 7 + 2);
  EXPECT_EQ(module(kQuery).in_features, 64);
  EXPECT_EQ(module(kQuery).out_features, 64);
  EXPECT_EQ(module(kQuery).row_width, 64 + 2 * 32);
  EXPECT_FALSE(module(kQuery).has_bias);
  EXPECT_TRUE(module(kUp).has_bias);
  EXPECT_EQ(module("model.embed_tokens").kind, AdapterModule::Kind::embedding);
  EXPECT_EQ(module("model.embed_tokens").in_features, 50);
  EXPECT_EQ(module("lm_head").kind, AdapterModule::Kind::head);
  EXPECT_EQ(module("lm_head").out_features, 50);
}

TEST_F(BoundAdapterTest, UnknownModulesAreRefusedByName) {
  ModuleChange change = random_.change(module(kQuery), 2);
  change.module = "model.layers.7.self_attn.q_proj";
  expect_refused(change, {"the model has no module model.layers.7.self_attn.q_proj"});
}

TEST_F(BoundAdapterTest, ModulesThatCannotBeChangedAreRefusedByName) {
  ModuleChange change = random_.change(module(kQuery), 2);
  change.module = "model.layers.0.input_layernorm";
  expect_refused(change, {"module model.layers.0.input_layernorm cannot be changed"});
}

TEST_F(BoundAdapterTest, ShapesThatDoNotFitAreRefusedWithBothShapes) {
  ModuleChange change = random_.change(module(kQuery), 2);
  change.lora->a = random_.matrix(2, 63, 1.0);
  expect_refused(change, {kQuery, "A is [2, 63]", "needs [rank, 64]"});
  change = random_.change(module(kQuery), 2);
  change.lora->b = random_.matrix(60, 2, 1.0);
  expect_refused(change, {kQuery, "B is [60, 2]", "needs [64, 2]"});
  change = random_.change(module(kQuery), 2);
  change.lora->b = random_.matrix(64, 3, 1.0);
  expect_refused(change, {kQuery, "B is [64, 3]", "needs [64, 2]"});
  change = random_.change(module(kQuery), 2, true);
  change.lora->magnitude = random_.matrix(1, 64, 1.0);
  expect_refused(change, {kQuery, "the magnitude is [1, 64]", "needs [64, 1]"});
  change = random_.change(module("model.embed_tokens"), 2);
  change.lora->a = random_.matrix(2, 64, 1.0);
  expect_refused(change, {"model.embed_tokens", "A is [2, 64]", "needs [rank, 50]"});
  const ModuleChange nothing{.module = "", .lora = std::nullopt, .weight = std::nullopt, .bias = std::nullopt};
  change = nothing;
  change.module = "model.embed_tokens";
  change.weight = random_.matrix(64, 50, 1.0);
  expect_refused(change, {"model.embed_tokens", "the weight is [64, 50]", "needs [50, 64]"});
  change = nothing;
  change.module = kUp;
  change.bias = random_.matrix(95, 1, 1.0);
  expect_refused(change, {kUp, "the bias is [95, 1]", "needs [96, 1]"});
  change = random_.change(module(kQuery), 2);
  change.lora->a.data.pop_back();
  expect_refused(change, {kQuery, "A has 511 bytes", "needs 512"});
}

TEST_F(BoundAdapterTest, ChangesThatAModuleDoesNotTakeAreRefused) {
  ModuleChange change = random_.change(module(kQuery), 2);
  change.bias = random_.matrix(64, 1, 1.0);
  expect_refused(change, {kQuery, "the model has none here"});
  change = random_.change(module(kQuery), 2);
  change.lora.reset();
  change.weight = random_.matrix(64, 64, 1.0);
  expect_refused(change, {kQuery, "only the weight of an embedding or of the head can be replaced"});
  change = random_.change(module("lm_head"), 2);
  change.weight = random_.matrix(50, 64, 1.0);
  expect_refused(change, {"lm_head", "cannot be both replaced and changed"});
  Adapter twice;
  twice.changes = {random_.change(module(kQuery), 2), random_.change(module(kQuery), 2)};
  expect_refused(twice, {kQuery, "is changed twice"});
}

TEST_F(BoundAdapterTest, ARowOfZerosCannotBeScaled) {
  ModuleChange change = random_.change(module(kQuery), 64, true);
  // B A = -W for row 5, with A = identity.
  const auto base = weights_.tensor(std::string(kQuery) + ".weight", {64, 64}).value();
  std::vector<float> identity(64 * 64);
  for (std::size_t i = 0; i < 64; ++i) identity[65 * i] = 1.0F;
  std::vector<float> negative(64 * 64);
  for (std::size_t i = 0; i < 64; ++i) negative[5 * 64 + i] = -static_cast<const float*>(base.data)[5 * 64 + i];
  change.lora->a = test::matrix_of(64, 64, identity);
  change.lora->b = test::matrix_of(64, 64, negative);
  change.lora->scale = 1.0F;
  expect_refused(change, {kQuery, "row 5", "DoRA"});
}

TEST_F(BoundAdapterTest, ItsBytesAreKnownFromAModelWithoutData) {
  const weights::MeasuredWeights measured(weights_, {});
  const auto without_data = llama_of_adapters().build(measured).value();
  Adapter adapter;
  for (const AdapterModule& one : modules().all()) {
    if (one.kind == AdapterModule::Kind::linear) adapter.changes.push_back(random_.change(one, 6));
  }
  const auto bound = BoundAdapter::create(adapter, modules(), *device_).value();
  EXPECT_EQ(planned_bytes(6, without_data->adapter_modules()), bound->bytes());
  Adapter one;
  one.changes.push_back(random_.change(module(kUp), 8));
  EXPECT_EQ(BoundAdapter::create(one, modules(), *device_).value()->bytes(), 8 * (64 + 96) * 4);
  EXPECT_EQ(BoundAdapter::create({}, modules(), *device_).value()->weights().change_of(0), nullptr);
}

TEST_F(BoundAdapterTest, FilesWithoutTheOuterModuleAreFoundByTheNamesOfAdapters) {
  ModuleChange change = random_.change(module(kQuery), 2);
  change.module = "language_model." + change.module;
  Adapter adapter;
  adapter.changes.push_back(change);
  EXPECT_TRUE(check(adapter, modules()).has_value());
}

/// B A is half of the base's weight, so that the changed weight is 1.5 times the base's: a wrong order of columns or a
/// rotation that is not undone gives another norm.
TEST(DoraFactors, ComeFromTheDequantisedWeights) {
  const RandomWeights base;
  const auto device = cpu_device();
  for (const char* quantize : {"none", "int8", "int4"}) {
    SCOPED_TRACE(quantize);
    const weights::LoadedWeights loaded(base, weights::weight_policy("auto", quantize), device);
    const auto model = llama_of_adapters().build(loaded).value();
    const layers::AdapterModules& modules = model->adapter_modules();
    for (const AdapterModule& module : modules.all()) {
      if (module.kind == AdapterModule::Kind::embedding) continue;
      SCOPED_TRACE(module.name);
      const std::int64_t in = module.in_features;
      const auto tensor = base.tensor(module.name + ".weight", {module.out_features, in}).value();
      const auto* weight = static_cast<const float*>(tensor.data);
      std::vector<float> identity(static_cast<std::size_t>(in * in));
      for (std::int64_t i = 0; i < in; ++i) identity[static_cast<std::size_t>(i * (in + 1))] = 1.0F;
      const LoraChange lora{.a = test::matrix_of(in, in, identity),
                            .b = test::matrix_of(module.out_features, in, {weight, weight + tensor.elements()}),
                            .scale = 0.5F,
                            .magnitude = RandomAdapters(4).matrix(module.out_features, 1, 0.2, 1.0)};
      const auto factors = dora_factors(lora, module, *device);
      ASSERT_TRUE(factors) << factors.error().message;
      const double tolerance = std::string(quantize) == "none" ? 1e-6 : std::string(quantize) == "int8" ? 0.01 : 0.1;
      for (std::int64_t n = 0; n < module.out_features; ++n) {
        double squares = 0.0;
        for (std::int64_t k = 0; k < in; ++k) squares += 2.25 * double{weight[n * in + k]} * weight[n * in + k];
        const double expected = element(*lora.magnitude, n, 0) / std::sqrt(squares);
        EXPECT_NEAR((*factors)[static_cast<std::size_t>(n)], expected, tolerance * std::abs(expected)) << n;
      }
    }
  }
}

TEST(DoraFactors, OfAnEmbeddingScaleTheColumnsOfItsTable) {
  const RandomWeights base;
  const auto device = cpu_device();
  const auto model = llama_of_adapters().build(base).value();
  const AdapterModule& module = model->adapter_modules()[model->adapter_modules().find("model.embed_tokens")];
  RandomAdapters random(5);
  const LoraChange lora = *random.change(module, 3, true).lora;
  const auto tensor = base.tensor("model.embed_tokens.weight", {50, 64}).value();
  const auto factors = dora_factors(lora, module, *device).value();
  ASSERT_EQ(factors.size(), 64U);
  for (std::int64_t d = 0; d < 64; ++d) {
    double squares = 0.0;
    for (std::int64_t t = 0; t < 50; ++t) {
      double value = static_cast<const float*>(tensor.data)[t * 64 + d];
      for (std::int64_t r = 0; r < 3; ++r) value += double{lora.scale} * element(lora.b, d, r) * element(lora.a, r, t);
      squares += value * value;
    }
    const double expected = element(*lora.magnitude, d, 0) / std::sqrt(squares);
    EXPECT_NEAR(factors[static_cast<std::size_t>(d)], expected, 1e-5 * std::abs(expected));
  }
}

}  // namespace
}  // namespace pagoda::adapters
