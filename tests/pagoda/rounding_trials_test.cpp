#include "pagoda/rounding_trials.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/pagoda/test_models.hpp"

namespace pagoda {
namespace {

TEST(RoundingTrials, TellWhatOtherWeightsDoToAModelAndLeaveItAsItWas) {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 1;
  config.quantize = "none";
  const auto model = TokenLogits::create(config, 64, {});
  ASSERT_TRUE(model) << model.error().message;
  const TokenIds text = (*model)->tokenizer().encode("Once upon a time there was a fox in a house", false).value();
  const std::vector<TokenIds> texts(2, text);
  RoundingTrials trials(**model, texts);
  ASSERT_TRUE(trials.remember());
  EXPECT_EQ(trials.divergence_with({}).value(), 0);
  // The demo model's o_proj has 128 rows and columns.
  constexpr std::int64_t kSize = 128;
  auto memory = (*model)->device()->allocate(kSize * kSize * sizeof(float), kernels::MemoryKind::host).value();
  std::fill_n(memory.as<float>(), kSize * kSize, 0.0F);
  const auto kept = std::make_shared<const kernels::Buffer>(std::move(memory));
  const weights::LinearWeight zeros{.plain = {kept->data(), DType::f32, kSize, kSize}, .memory = kept};
  const auto without = trials.divergence_with({{"model.layers.1.self_attn.o_proj", zeros}});
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_GT(*without, 1e-4);
  EXPECT_LT(*without, 20);
  EXPECT_EQ(trials.divergence_with({{"model.layers.1.self_attn.o_proj", zeros}}).value(), *without);
  EXPECT_EQ(trials.divergence_with({}).value(), 0) << "the model is as it was";
}

TEST(ChooseMoreBits, GivesThemToLayersThatNeedThemMostAsLongAsTheyFit) {
  const std::vector<LayerTrial> trials{{100, 0.1}, {50, 0.2}, {200, 0.1}, {10, 0.0}};
  const auto chosen = [&](double target) { return choose_more_bits(trials, 4, 8, target); };
  using Chosen = std::vector<bool>;
  EXPECT_EQ(chosen(4), Chosen({false, false, false, false}));
  EXPECT_EQ(chosen(4.6), Chosen({false, true, false, false}));
  EXPECT_EQ(chosen(5.7), Chosen({true, true, false, false}));
  EXPECT_EQ(chosen(5.2), Chosen({false, true, false, false})) << "the next one does not fit";
  EXPECT_EQ(chosen(8), Chosen({true, true, true, false})) << "what loses nothing needs nothing";
}

}  // namespace
}  // namespace pagoda
