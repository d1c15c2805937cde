#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/models/described.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::read_family;

json granite() {
  return {{"hidden_size", 64}, {"intermediate_size", 96},        {"num_hidden_layers", 2}, {"num_attention_heads", 8},
          {"vocab_size", 512}, {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5}};
}

TEST(Granite, HasAFactorOfScoresAndTheEpsilonOfItsConfig) {
  auto source = granite();
  auto config = read_family(describe_granite, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.scale, 1.0) << "it does not depend on head_dim";
  source["attention_multiplier"] = 0.015625;
  source["residual_multiplier"] = 0.22;
  config = read_family(describe_granite, source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->decoder.attention.scale, 0.015625);
  EXPECT_EQ(config->decoder.norm_eps, 1e-5) << "though the norms work with another";
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    for (const double value : {0.0, 1e-200}) {
      auto spoilt = source;
      spoilt[key] = value;
      config = read_family(describe_granite, spoilt);
      ASSERT_FALSE(config) << key;
      EXPECT_EQ(config.error().param, key);
      EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    }
  }
}

}  // namespace
}  // namespace pagoda::models
