// Prompt adapters in the batches of a model.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/device_weights.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "tests/engine/adapters/adapted_families.hpp"
#include "tests/engine/adapters/adapted_model.hpp"
#include "tests/engine/adapters/random_adapters.hpp"
#include "tests/support/cpu_device.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::test {
namespace {

using adapters::VirtualTokens;
using BoundPointer = std::unique_ptr<const adapters::BoundAdapter>;

const TokenIds kSomeTokens{3, 41, 7, 7, 19, 2, 30, 11};
const TokenIds kFewTokens{5, 9, 13};

class PromptFamilyTest : public testing::TestWithParam<AdaptedFamily> {
 protected:
  /// Binds virtual tokens with these rows.
  static BoundPointer bind(AdaptedModel& model, VirtualTokens::Kind kind, std::int64_t num_tokens,
                           const std::vector<float>& rows) {
    adapters::Adapter adapter;
    adapter.prompt = {kind, matrix_of(num_tokens, std::ssize(rows) / num_tokens, rows), 0};
    return model.bind(adapter);
  }

  RandomWeights base_;
};

TEST_P(PromptFamilyTest, EmbeddingsOfTokensGiveWhatTheTokensGive) {
  AdaptedModel model(GetParam().spec(), base_, cpu_device());
  const TokenIds first{17, 4, 33, 4, 8};
  const auto& modules = model.modules();
  const auto width = modules.embedding_width();
  const auto table =
      std::ranges::find(modules.all(), layers::AdapterModule::Kind::embedding, &layers::AdapterModule::kind);
  const auto tensor = base_.tensor(table->name + ".weight", {table->in_features, width}).value();
  const double factor = GetParam().name.starts_with("gemma") ? std::sqrt(static_cast<double>(width)) : 1.0;
  std::vector<float> rows;
  for (const TokenId token : first) {
    for (std::int64_t i = 0; i < width; ++i) {
      rows.push_back(static_cast<float>(factor) * static_cast<const float*>(tensor.data)[token * width + i]);
    }
  }
  const auto bound = bind(model, VirtualTokens::Kind::embeddings, std::ssize(first), rows);
  TokenIds all = first;
  all.insert(all.end(), kSomeTokens.begin(), kSomeTokens.end());
  auto expected = model.run({{all, nullptr}}).front();
  expected.erase(expected.begin(), expected.begin() + std::ssize(first));
  expect_near(model.run({{kSomeTokens, bound.get()}}).front(), expected);
  expect_near(model.run({{kSomeTokens, bound.get()}}, 3).front(), expected);
}

TEST_P(PromptFamilyTest, KeysAndValuesOfTokensGiveWhatTheTokensGive) {
  AdaptedModel model(GetParam().spec(), base_, cpu_device());
  const TokenIds first{17, 4, 33, 4, 8};
  TokenIds all = first;
  all.insert(all.end(), kSomeTokens.begin(), kSomeTokens.end());
  auto expected = model.run({{all, nullptr}}).front();
  const auto rows = model.kv_of_first(std::ssize(first), 1);
  const auto bound = bind(model, VirtualTokens::Kind::prefix, std::ssize(first), rows);
  expected.erase(expected.begin(), expected.begin() + std::ssize(first));
  expect_near(model.run({{kSomeTokens, bound.get()}}).front(), expected);
  expect_near(model.run({{kSomeTokens, bound.get()}}, 2).front(), expected);
}

TEST_P(PromptFamilyTest, AMixedBatchGivesWhatEachPromptGivesAlone) {
  AdaptedModel model(GetParam().spec(), base_, cpu_device());
  RandomAdapters random(21);
  const auto embeddings = model.bind(random.prompt(model.modules(), VirtualTokens::Kind::embeddings, 4));
  const auto prefix = model.bind(random.prompt(model.modules(), VirtualTokens::Kind::prefix, 18));
  const auto lora = model.bind(random.adapter(model.modules(), 8));
  const std::vector<AdaptedPrompt> prompts{{kFewTokens, prefix.get()},    {kSomeTokens, embeddings.get()},
                                           {kSomeTokens, nullptr},        {kSomeTokens, lora.get()},
                                           {kFewTokens, lora.get()},      {kSomeTokens, prefix.get()},
                                           {kFewTokens, embeddings.get()}};
  std::vector<AdaptedPrompt> plain = prompts;
  for (AdaptedPrompt& prompt : plain) prompt.adapter = nullptr;
  const auto without = model.run(plain);
  for (const DType kv_dtype : {DType::f32, DType::bf16, DType::int8, DType::fp8_e4m3}) {
    SCOPED_TRACE(to_string(kv_dtype));
    model.kv_dtype = kv_dtype;
    const auto together = model.run(prompts);
    const auto in_chunks = model.run(prompts, 3);
    model.placeholder = 11;  // the ids of virtual tokens mean nothing
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      const auto alone = model.run({prompts[i]}).front();
      EXPECT_EQ(together[i], alone);
      expect_near(in_chunks[i], alone);
      if (prompts[i].adapter != nullptr) {
        EXPECT_NE(alone, without[i]);
      } else if (kv_dtype == DType::f32) {
        EXPECT_EQ(alone, without[i]);
      }
    }
    model.placeholder = 0;
  }
}

TEST_P(PromptFamilyTest, ADeviceWithMemoryOfItsOwnGivesTheSameLogits) {
  const auto spec = GetParam().spec();
  AdaptedModel expected(spec, base_, cpu_device());
  const auto device = std::make_shared<SplitMemoryDevice>();
  const weights::LoadedWeights host(base_, {}, cpu_device());
  const weights::DeviceWeights on_device(host, device, std::int64_t{4} << 20, nullptr);
  AdaptedModel model(spec, on_device, device);
  on_device.finish();
  RandomAdapters random(22);
  for (const auto kind : {VirtualTokens::Kind::embeddings, VirtualTokens::Kind::prefix}) {
    const auto adapter = random.prompt(model.modules(), kind, 5);
    const auto bound = model.bind(adapter);
    const auto bound_on_cpu = expected.bind(adapter);
    const auto logits = model.run({{kFewTokens, nullptr}, {kSomeTokens, bound.get()}}, 4);
    const auto on_cpu = expected.run({{kFewTokens, nullptr}, {kSomeTokens, bound_on_cpu.get()}}, 4);
    expect_near(logits[0], on_cpu[0]);
    expect_near(logits[1], on_cpu[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PromptFamilyTest, testing::ValuesIn(adapted_families()),
                         [](const auto& tested) { return tested.param.name; });

class PromptModelTest : public testing::Test {
 protected:
  RandomWeights base_;
  std::shared_ptr<kernels::Device> device_ = cpu_device();
  AdaptedModel model_{adapted_families().front().spec(), base_, device_};
  RandomAdapters random_{23};
};

TEST_F(PromptModelTest, ShapesThatDoNotFitAreRefusedWithBothShapes) {
  const auto expect_refused = [&](const adapters::Adapter& adapter, const std::vector<std::string>& parts) {
    const auto bound = adapters::BoundAdapter::create(adapter, model_.modules(), *device_);
    ASSERT_FALSE(bound);
    EXPECT_EQ(bound.error().code, ErrorCode::bad_file);
    for (const std::string& part : parts) EXPECT_THAT(bound.error().message, testing::HasSubstr(part));
  };
  auto adapter = random_.prompt(model_.modules(), VirtualTokens::Kind::embeddings, 2);
  adapter.prompt->rows = random_.matrix(2, 31, 1.0);
  expect_refused(adapter, {"embeddings of 31", "those of the model have 32"});
  adapter.prompt->rows = random_.matrix(2, 32, 1.0);
  adapter.prompt->rows.data.pop_back();
  expect_refused(adapter, {"the matrix of its virtual tokens has 255 bytes", "needs 256"});
  adapter = random_.prompt(model_.modules(), VirtualTokens::Kind::prefix, 2);
  adapter.prompt->num_heads = 4;
  expect_refused(adapter, {"keys of 4 heads", "the model has 2"});
  adapter.prompt->rows = random_.matrix(2, 128, 1.0);
  expect_refused(adapter,
                 {"keys and values of 128 elements", "needs 64 (2 layers with keys and values of 2 heads of 8)"});
  adapter = random_.prompt(model_.modules(), VirtualTokens::Kind::prefix, 2);
  adapter.changes = random_.adapter(model_.modules(), 1).changes;
  expect_refused(adapter, {"virtual tokens and changed modules"});
}

TEST_F(PromptModelTest, NoneTakesMoreThanIsPlanned) {
  std::int64_t most = 0;
  for (const auto kind : {VirtualTokens::Kind::embeddings, VirtualTokens::Kind::prefix}) {
    most = std::max(most, model_.bind(random_.prompt(model_.modules(), kind, 16))->bytes());
  }
  EXPECT_EQ(adapters::planned_prompt_bytes(16, model_.modules()), most);
}

TEST_F(PromptModelTest, RowsThatDoNotFitTheBatchAndPromptsOfOtherModelsAreInternalErrors) {
  AdaptedModel other(model_.spec(), base_, device_);
  const auto bound = model_.bind(random_.prompt(model_.modules(), VirtualTokens::Kind::embeddings, 3));
  const auto of_other = other.bind(random_.prompt(other.modules(), VirtualTokens::Kind::embeddings, 3));
  const auto stream = device_->create_stream("test").value();
  const auto refused = [&](const layers::BatchPrompts& prompts) -> std::string {
    const auto status = model_.model().run(*stream, {.num_tokens = 4, .prompts = &prompts}, {});
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(refused({{3, 2, 0, bound->prompt()}}), testing::HasSubstr("rows 3 to 5 are not in order"));
  EXPECT_THAT(refused({{2, 1, 0, bound->prompt()}, {0, 1, 0, bound->prompt()}}), testing::HasSubstr("rows 0 to 1"));
  EXPECT_THAT(refused({{0, 2, 2, bound->prompt()}}), testing::HasSubstr("behind the virtual tokens"));
  EXPECT_THAT(refused({{0, 1, 0, of_other->prompt()}}), testing::HasSubstr("not bound to this model"));
}

}  // namespace
}  // namespace pagoda::test
