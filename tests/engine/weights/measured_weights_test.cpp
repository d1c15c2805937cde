#include "engine/weights/measured_weights.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/models/model_spec.hpp"
#include "engine/weights/rank_weights.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/hf_config.hpp"
#include "tests/engine/weights/wave_weights.hpp"

namespace pagoda::weights {
namespace {

std::vector<std::string> model_folders() {
  const std::string root = PAGODA_SOURCE_DIR;
  std::vector<std::string> folders = {root + "/examples/models/pagoda-stories"};
  for (const auto& entry : std::filesystem::directory_iterator(root + "/tests/data/models")) {
    if (std::filesystem::exists(entry.path() / "golden.json")) folders.push_back(entry.path().string());
  }
  return folders;
}

std::vector<WeightPolicy> policies() {
  std::vector<WeightPolicy> all;
  for (const char* quantize : {"none", "int8", "int4"}) {
    for (const char* dtype : {"auto", "float32", "bfloat16"}) {
      for (const bool copy_linear : {false, true}) {
        all.push_back(weight_policy(dtype, quantize));
        all.back().copy_linear = copy_linear;
      }
    }
  }
  return all;
}

/// Tests every family and every policy.
TEST(MeasuredWeights, TheBytesOfAModelAreKnownBeforeTheyAreLoaded) {
  const auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""}).value();
  for (const auto& folder : model_folders()) {
    const auto spec = io::load_hf_config(folder).value();
    const auto checkpoint = io::Checkpoint::open(folder).value();
    const auto facts = checkpoint->facts();
    for (const auto& policy : policies()) {
      SCOPED_TRACE(testing::Message() << folder << (policy.dtype ? to_string(*policy.dtype) : " auto")
                                      << (policy.quantize ? policy.quantize->bits : 0) << policy.copy_linear);
      const MeasuredWeights measured(*checkpoint, policy);
      const LoadedWeights loaded(*checkpoint, policy, device);
      ASSERT_TRUE(spec.build(measured));
      const auto model = spec.build(loaded);
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_EQ(measured.copied_bytes(), loaded.copied_bytes());
      if (policy.dtype || policy.quantize) {
        EXPECT_GE(measured.loaded_bytes(), measured.copied_bytes());
      } else if (!policy.copy_linear) {
        EXPECT_EQ(measured.loaded_bytes(), facts.weight_bytes);
      }
    }
  }
}

TEST(MeasuredWeights, TheBytesOfEachRankAreKnown) {
  const auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""}).value();
  for (const auto& folder : model_folders()) {
    const auto whole = io::load_hf_config(folder).value();
    const auto num_ranks = static_cast<std::int32_t>(whole.decoder.attention.num_heads);
    for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
      const auto checkpoint = io::Checkpoint::open(folder).value();
      const models::RankPlace place{rank, num_ranks};
      const RankWeights part(*checkpoint, rank == 0, true,
                             [&](std::string_view module) { return models::slice_of(whole.decoder, place, module); });
      const auto spec = whole.of_rank(place);
      for (const char* quantize : {"none", "int8", "int4"}) {
        SCOPED_TRACE(testing::Message() << folder << ", rank " << rank << " of " << num_ranks << ", " << quantize);
        const auto policy = weight_policy("auto", quantize);
        const MeasuredWeights measured(part, policy);
        const LoadedWeights loaded(part, policy, device);
        ASSERT_TRUE(spec.build(measured));
        const auto model = spec.build(loaded);
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_EQ(measured.copied_bytes(), loaded.copied_bytes());
      }
      EXPECT_TRUE(checkpoint->check_all_used(spec));
    }
  }
}

TEST(MeasuredWeights, NoTensorCountsAsTaken) {
  const std::string folder = std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories";
  const auto spec = io::load_hf_config(folder).value();
  const auto checkpoint = io::Checkpoint::open(folder).value();
  const MeasuredWeights measured(*checkpoint, WeightPolicy{});
  ASSERT_TRUE(spec.build(measured));
  EXPECT_FALSE(checkpoint->check_all_used(spec));
  ASSERT_TRUE(spec.build(*checkpoint));
  EXPECT_TRUE(checkpoint->check_all_used(spec));
}

TEST(MeasuredWeights, HaveTypesAndNoData) {
  const test::WaveWeights stored;
  const MeasuredWeights measured(stored, weight_policy("bfloat16", "int8"));
  const auto tensor = measured.tensor("norm.weight", {5});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->dtype, DType::bf16);
  EXPECT_EQ(tensor->data, nullptr);
  const auto linear = measured.linear("up_proj", 40, 100);
  ASSERT_TRUE(linear);
  ASSERT_NE(linear->quantized, nullptr);
  EXPECT_EQ(measured.loaded_bytes(), 5 * 2 + linear->quantized->matrix.bytes());
  ASSERT_TRUE(measured.linear("up_proj", 40, 100));
  EXPECT_EQ(measured.loaded_bytes(), 5 * 2 + linear->quantized->matrix.bytes()) << "each weight counts once";
}

}  // namespace
}  // namespace pagoda::weights
