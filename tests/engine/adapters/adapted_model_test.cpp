#include "tests/engine/adapters/adapted_model.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/device_weights.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "tests/engine/adapters/adapted_families.hpp"
#include "tests/engine/adapters/random_adapters.hpp"
#include "tests/support/cpu_device.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::test {
namespace {

using adapters::Adapter;
using layers::AdapterModule;
using Kind = AdapterModule::Kind;

const TokenIds kLong{3, 41, 7, 7, 19, 2, 30, 11};
const TokenIds kShort{5, 9, 13};
const TokenIds kOne{22};

class AdaptedFamilyTest : public testing::TestWithParam<AdaptedFamily> {
 protected:
  /// Expects the prompts of a batch to give what each gives alone, and the prompts without adapter what they give
  /// without any adapter, to the bit.
  void expect_independent(AdaptedModel& model, const std::vector<AdaptedPrompt>& prompts) {
    const auto together = model.run(prompts);
    std::vector<AdaptedPrompt> plain = prompts;
    for (AdaptedPrompt& prompt : plain) prompt.adapter = nullptr;
    const auto without = model.run(plain);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(together[i], model.run({prompts[i]}).front());
      if (prompts[i].adapter == nullptr) {
        EXPECT_EQ(together[i], without[i]);
      } else {
        EXPECT_NE(together[i], without[i]);
      }
    }
  }

  AdaptedModel::Logits merged(const Adapter& adapter, const TokenIds& tokens) {
    const MergedWeights weights(base_, adapter, GetParam().transposed);
    return AdaptedModel(GetParam().spec(), weights, cpu_device()).run({{tokens, nullptr}}).front();
  }

  RandomWeights base_;
};

TEST_P(AdaptedFamilyTest, AMixedBatchGivesWhatEachAdapterGivesAloneAndWhatMergedWeightsGive) {
  AdaptedModel model(GetParam().spec(), base_, cpu_device());
  RandomAdapters random(7);
  std::vector<Adapter> adapters;
  for (const std::int64_t rank : {1, 8, 33}) adapters.push_back(random.adapter(model.modules(), rank));
  adapters.push_back(random.adapter(model.modules(), 4, true));
  std::vector<std::unique_ptr<const adapters::BoundAdapter>> bound;
  for (const Adapter& adapter : adapters) bound.push_back(model.bind(adapter));
  const std::vector<AdaptedPrompt> prompts{{kShort, bound[0].get()}, {kLong, nullptr},        {kLong, bound[1].get()},
                                           {kOne, bound[2].get()},   {kLong, bound[3].get()}, {kOne, nullptr},
                                           {kShort, bound[1].get()}};
  expect_independent(model, prompts);
  const auto logits = model.run(prompts);
  const std::vector<std::pair<std::size_t, std::size_t>> adapter_of{{0, 0}, {2, 1}, {3, 2}, {4, 3}, {6, 1}};
  for (const auto& [prompt, adapter] : adapter_of) {
    SCOPED_TRACE(testing::Message() << "prompt " << prompt << ", adapter " << adapter);
    expect_near(logits[prompt], merged(adapters[adapter], prompts[prompt].tokens));
  }
}

TEST_P(AdaptedFamilyTest, AnAdapterMayReplaceBiasesTheEmbeddingAndTheHead) {
  AdaptedModel model(GetParam().spec(), base_, cpu_device());
  RandomAdapters random(8);
  Adapter adapter;
  for (const AdapterModule& module : model.modules().all()) {
    adapters::ModuleChange change{
        .module = module.name, .lora = std::nullopt, .weight = std::nullopt, .bias = std::nullopt};
    if (module.kind == Kind::embedding) {
      change.weight = random.matrix(module.in_features, module.out_features, 1.0);
    } else if (module.kind == Kind::head) {
      change.weight = random.matrix(module.out_features, module.in_features, 0.3);
    } else if (module.has_bias) {
      // Every second module has its bias alone, the others with a change of the weight.
      if (adapter.changes.size() % 2 == 0) change = random.change(module, 3, adapter.changes.size() % 4 == 0);
      change.bias = random.matrix(module.out_features, 1, 0.2);
    } else {
      continue;
    }
    adapter.changes.push_back(std::move(change));
  }
  const auto bound = model.bind(adapter);
  expect_independent(model, {{kLong, bound.get()}, {kShort, nullptr}, {kOne, bound.get()}});
  expect_near(model.run({{kOne, nullptr}, {kLong, bound.get()}})[1], merged(adapter, kLong));
}

TEST_P(AdaptedFamilyTest, ADeviceWithMemoryOfItsOwnGivesTheSameLogits) {
  const auto spec = GetParam().spec();
  AdaptedModel expected(spec, base_, cpu_device());
  const auto device = std::make_shared<SplitMemoryDevice>();
  const weights::LoadedWeights host(base_, {}, cpu_device());
  const weights::DeviceWeights on_device(host, device, std::int64_t{4} << 20, nullptr);
  AdaptedModel model(spec, on_device, device);
  on_device.finish();
  RandomAdapters random(9);
  Adapter adapter = random.adapter(model.modules(), 5, true);
  for (adapters::ModuleChange& change : adapter.changes) {
    const AdapterModule& module = model.modules()[model.modules().find(change.module)];
    if (module.has_bias) change.bias = random.matrix(module.out_features, 1, 0.2);
  }
  const auto bound = model.bind(adapter);
  const auto bound_on_cpu = expected.bind(adapter);
  const auto logits = model.run({{kShort, nullptr}, {kLong, bound.get()}});
  const auto on_cpu = expected.run({{kShort, nullptr}, {kLong, bound_on_cpu.get()}});
  expect_near(logits[0], on_cpu[0]);
  expect_near(logits[1], on_cpu[1]);
}

INSTANTIATE_TEST_SUITE_P(Families, AdaptedFamilyTest, testing::ValuesIn(adapted_families()),
                         [](const auto& tested) { return tested.param.name; });

TEST(AdaptedModel, RowsOfAQuantisedModelDoNotDependOnAdaptersOfOtherRows) {
  const RandomWeights base;
  const auto device = cpu_device();
  for (const char* quantize : {"int8", "int4"}) {
    SCOPED_TRACE(quantize);
    const weights::LoadedWeights loaded(base, weights::weight_policy("auto", quantize), device);
    AdaptedModel model(adapted_families().front().spec(), loaded, device);
    RandomAdapters random(10);
    const auto first = model.bind(random.adapter(model.modules(), 8));
    const auto second = model.bind(random.adapter(model.modules(), 16, true));
    const auto together = model.run({{kShort, first.get()}, {kLong, nullptr}, {kLong, second.get()}});
    EXPECT_EQ(together[0], model.run({{kShort, first.get()}}).front());
    EXPECT_EQ(together[1], model.run({{kLong, nullptr}}).front());
    EXPECT_EQ(together[2], model.run({{kLong, second.get()}}).front());
    EXPECT_NE(together[2], together[1]);
  }
}

TEST(AdaptedModel, ManyRowsOfDoraGoThroughItsWorkMemoryInPieces) {
  const RandomWeights base;
  const auto spec = adapted_families().front().spec();
  AdaptedModel model(spec, base, cpu_device());
  RandomAdapters random(11);
  const Adapter adapter = random.adapter(model.modules(), 2, true);
  const auto bound = model.bind(adapter);
  TokenIds tokens;
  for (TokenId i = 0; i < 50; ++i) tokens.push_back(i);
  // Four sequences of one adapter after one without are 200 rows that follow one another.
  const auto logits = model.run(
      {{kOne, nullptr}, {tokens, bound.get()}, {tokens, bound.get()}, {tokens, bound.get()}, {tokens, bound.get()}});
  const MergedWeights weights(base, adapter, false);
  const auto merged = AdaptedModel(spec, weights, cpu_device()).run({{tokens, nullptr}}).front();
  for (std::size_t i = 1; i < logits.size(); ++i) {
    EXPECT_EQ(logits[i], logits[1]);
  }
  expect_near(logits[1], merged);
}

TEST(AdaptedModel, ATiedHeadAndItsEmbeddingChangeAlone) {
  const RandomWeights base;
  AdaptedModel model(adapted_families()[1].spec(), base, cpu_device());
  RandomAdapters random(12);
  const auto of_kind = [&](Kind kind) {
    return model.bind(
        random.adapter(model.modules(), 4, false, [&](const auto& module) { return module.kind == kind; }));
  };
  const auto head = of_kind(Kind::head);
  const auto embedding = of_kind(Kind::embedding);
  const auto plain = model.run({{kOne, nullptr}}).front();
  const auto with_head = model.run({{kOne, head.get()}}).front();
  const auto with_embedding = model.run({{kOne, embedding.get()}}).front();
  EXPECT_NE(with_head, plain);
  EXPECT_NE(with_embedding, plain);
  EXPECT_NE(with_embedding, with_head);
}

TEST(AdaptedModel, RowsThatDoNotFitTheBatchAndAdaptersOfOtherModelsAreInternalErrors) {
  const RandomWeights base;
  const auto spec = adapted_families().front().spec();
  const auto device = cpu_device();
  AdaptedModel model(spec, base, device);
  AdaptedModel other(spec, base, device);
  RandomAdapters random(13);
  const auto bound = model.bind(random.adapter(model.modules(), 1));
  const auto of_other = other.bind(random.adapter(other.modules(), 1));
  const auto stream = device->create_stream("test").value();
  const auto refused = [&](const layers::BatchAdapters& adapters) {
    const auto status = model.model().run(*stream, {.num_tokens = 4, .adapters = &adapters}, {});
    EXPECT_FALSE(status);
    const auto logits = model.model().logits(*stream, nullptr, 4, nullptr, &adapters);
    EXPECT_FALSE(logits);
    if (!logits) {
      EXPECT_EQ(logits.error().message, status.error().message);
    }
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(refused({{3, 2, &bound->weights()}}),
              testing::HasSubstr("rows 3 to 5 are not in order among the 4 rows"));
  EXPECT_THAT(refused({{2, 1, &bound->weights()}, {0, 1, &bound->weights()}}), testing::HasSubstr("rows 0 to 1"));
  EXPECT_THAT(refused({{0, 1, &of_other->weights()}}), testing::HasSubstr("not bound to this model"));
  EXPECT_THAT(refused({{0, 1, nullptr}}), testing::HasSubstr("not bound to this model"));
}

}  // namespace
}  // namespace pagoda::test
