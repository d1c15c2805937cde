// Configs of draft heads: the keys of EAGLE's authors and of other programs that train heads.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/draft_head.hpp"
#include "engine/models/families.hpp"
#include "tests/engine/models/described.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::read_family;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLayers = "eagle_aux_hidden_state_layer_ids";

json head() {
  return json::parse(R"({
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 1, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 512, "draft_vocab_size": 128, "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0, "hidden_act": "silu"})");
}

Result<ModelSpec> read(const json& source) {
  return read_family(describe_eagle3, source);
}

TEST(Eagle3, IsADraftHeadOfSizesThatItNames) {
  const auto spec = read(head());
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_TRUE(spec->draft_head);
  EXPECT_EQ(spec->draft_head->draft_vocab_size, 128);
  EXPECT_EQ(spec->draft_head->target_hidden_size, 64);
  EXPECT_THAT(spec->draft_head->feature_layers, IsEmpty()) << "chosen for the model";
  EXPECT_EQ(spec->position_limit, kMaxPositions) << "the model's limit counts";
  EXPECT_THAT(DraftHeadFacts::default_feature_layers(32), ElementsAre(2, 16, 29));
}

TEST(Eagle3, IsNotAmongTheModels) {
  EXPECT_NE(find_family("LlamaForCausalLMEagle3"), nullptr);
  EXPECT_THAT(known_architectures(), testing::Not(testing::Contains("LlamaForCausalLMEagle3")));
}

TEST(Eagle3, ReadsLayersFromEitherPlace) {
  json source = head();
  source["eagle_config"] = {{kLayers, {1, 4, 9}}};
  EXPECT_THAT(read(source)->draft_head->feature_layers, ElementsAre(1, 4, 9));
  source[kLayers] = json::array();  // as absent
  EXPECT_THAT(read(source)->draft_head->feature_layers, ElementsAre(1, 4, 9));
  source[kLayers] = {2, 5, 9};
  EXPECT_THAT(read(source)->draft_head->feature_layers, ElementsAre(2, 5, 9));
  source[kLayers] = {2, 5.5, 9};
  EXPECT_THAT(read(source).error().message, HasSubstr("must be whole numbers"));
  source[kLayers] = {2, 5};
  EXPECT_THAT(read(source).error().message, HasSubstr("must be an array of 3 numbers"));
}

TEST(Eagle3, ReadsTheLayerOfSpeculatorsFromAnObject) {
  json source{{"transformer_layer_config", head()}, {"draft_vocab_size", 32}, {"target_hidden_size", nullptr}};
  const auto spec = read(source);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->decoder.hidden_size, 64);
  EXPECT_EQ(spec->draft_head->draft_vocab_size, 32);
  EXPECT_EQ(spec->draft_head->target_hidden_size, 64);
  source["transformer_layer_config"]["num_hidden_layers"] = 2;
  EXPECT_THAT(read(source).error().message, HasSubstr("is 2: a draft head has 1 layer"));
}

TEST(Eagle3, MayHaveAWindow) {
  json source = head();
  source["sliding_window"] = 32;
  EXPECT_EQ(read(source)->decoder.largest_window(), 0) << "only layer_types says so";
  source["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(read(source)->decoder.largest_window(), 32);
}

TEST(Eagle3, RefusesWhatItCannotBe) {
  json source = head();
  source["hidden_size"] = 63;
  source["head_dim"] = 8;
  EXPECT_THAT(read(source).error().message, HasSubstr("must be even"));
  source = head();
  source["draft_vocab_size"] = 513;
  EXPECT_EQ(read(source).error().param, "draft_vocab_size");
  source = head();
  source["use_aux_hidden_state"] = false;
  EXPECT_EQ(read(source).error().code, ErrorCode::unsupported);
}

TEST(FeatureLayout, PutsTheHalvesOfABlockBehindEachOther) {
  const FeatureLayout layout{.hidden_size = 8, .block_size = 4};
  EXPECT_EQ(layout.half_bytes(), 16);
  EXPECT_EQ(layout.bytes(), 128);
  constexpr std::int64_t kBlockBytes = 256;  // 16 halves
  EXPECT_EQ(layout.first_half(0, kBlockBytes), 0);
  EXPECT_EQ(layout.first_half(3, kBlockBytes), 3);
  EXPECT_EQ(layout.first_half(9, kBlockBytes), 33);
}

}  // namespace
}  // namespace pagoda::models
