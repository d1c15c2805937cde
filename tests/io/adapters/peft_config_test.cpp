#include "io/adapters/peft_config.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

/// Returns the config of a LoRA adapter with these keys.
Result<PeftConfig> parse(const std::string& keys) {
  return PeftConfig::parse(R"({"peft_type":"LORA")" + (keys.empty() ? "" : "," + keys) + "}", "adapter_config.json");
}

void expect_refused(const std::string& keys, ErrorCode code, std::string_view key, std::string_view reason) {
  SCOPED_TRACE(keys);
  const auto config = parse(keys);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_EQ(config.error().param, key);
  EXPECT_THAT(config.error().message, HasSubstr("adapter_config.json: " + std::string(key) + ": "));
  EXPECT_THAT(config.error().message, HasSubstr(std::string(reason)));
}

constexpr const char* kModule = "model.layers.3.self_attn.q_proj";

TEST(PeftConfig, HasTheDefaultsOfPeft) {
  const auto config = parse("").value();
  EXPECT_EQ(config.rank_of(kModule).value(), 8);
  EXPECT_FLOAT_EQ(config.scale_of(kModule, 8).value(), 1.0F);
  EXPECT_FALSE(config.uses_dora());
  EXPECT_EQ(config.bias(), AdapterBias::none);
  EXPECT_TRUE(config.targets(kModule).value());
  EXPECT_FALSE(config.saves(kModule).value());
}

TEST(PeftConfig, ScalesByTheRankOrByItsRoot) {
  EXPECT_FLOAT_EQ(parse(R"("lora_alpha":24,"r":16)").value().scale_of(kModule, 16).value(), 1.5F);
  EXPECT_FLOAT_EQ(parse(R"("lora_alpha":24,"r":16,"use_rslora":true)").value().scale_of(kModule, 16).value(), 6.0F);
}

TEST(PeftConfig, TakesTheFirstPatternThatMatchesTheEndOfTheName) {
  const auto config =
      parse(R"("r":4,"rank_pattern":{"v_proj":1,"layers\\.3\\.self_attn\\.[qv]_proj":2,"q_proj":3,"^q":5},
      "alpha_pattern":{"^model\\.layers\\.3.*":32,"q_proj":1})")
          .value();
  EXPECT_EQ(config.rank_of(kModule).value(), 2);
  EXPECT_EQ(config.rank_of("model.layers.3.self_attn.v_proj").value(), 1);
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.q_proj").value(), 3);
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.xq_proj").value(), 4);  // the name of another module
  EXPECT_EQ(config.rank_of("q").value(), 5);
  EXPECT_FLOAT_EQ(config.scale_of(kModule, 2).value(), 16.0F);
  EXPECT_FLOAT_EQ(config.scale_of("model.layers.1.self_attn.q_proj", 2).value(), 0.5F);
  EXPECT_FLOAT_EQ(config.scale_of("lm_head", 2).value(), 4.0F);
}

TEST(PeftConfig, OrderOfPatternsIsThatOfTheFile) {
  EXPECT_EQ(parse(R"("rank_pattern":{"z.*|q_proj":2,"a|q_proj":3})").value().rank_of(kModule).value(), 2);
  EXPECT_EQ(parse(R"("rank_pattern":{"a|q_proj":3,"z.*|q_proj":2})").value().rank_of(kModule).value(), 3);
}

TEST(PeftConfig, ChoosesModulesByListByPatternAndAllLinear) {
  const auto list = parse(R"("target_modules":["q_proj","mlp.up_proj"])").value();
  EXPECT_TRUE(list.targets(kModule).value());
  EXPECT_TRUE(list.targets("q_proj").value());
  EXPECT_TRUE(list.targets("model.layers.0.mlp.up_proj").value());
  EXPECT_FALSE(list.targets("model.layers.0.up_proj").value());
  EXPECT_FALSE(list.targets("model.layers.0.self_attn.xq_proj").value());
  const auto pattern = parse(R"("target_modules":".*\\.[13]\\..*q_proj")").value();
  EXPECT_TRUE(pattern.targets(kModule).value());
  EXPECT_FALSE(pattern.targets("model.layers.2.self_attn.q_proj").value());
  EXPECT_FALSE(pattern.targets(std::string(kModule) + ".x").value());
  EXPECT_TRUE(parse(R"("target_modules":"all-linear")").value().targets(kModule).value());
}

TEST(PeftConfig, ExcludesModules) {
  const auto list = parse(R"("target_modules":"all-linear","exclude_modules":["3.self_attn.q_proj"])").value();
  EXPECT_FALSE(list.targets(kModule).value());
  EXPECT_TRUE(list.targets("model.layers.13.self_attn.q_proj").value());
  EXPECT_TRUE(list.targets("model.layers.2.self_attn.q_proj").value());
  const auto pattern = parse(R"("target_modules":["q_proj"],"exclude_modules":".*\\.3\\..*")").value();
  EXPECT_FALSE(pattern.targets(kModule).value());
  EXPECT_TRUE(pattern.targets("model.layers.2.self_attn.q_proj").value());
  const auto saved = parse(R"("target_modules":["q_proj"],"modules_to_save":["q_proj"])").value();
  EXPECT_FALSE(saved.targets(kModule).value());
  EXPECT_TRUE(saved.saves(kModule).value());
}

TEST(PeftConfig, ChoosesLayers) {
  for (const char* more : {"", R"(,"layers_pattern":"layers")", R"(,"layers_pattern":["h","layers"])"}) {
    SCOPED_TRACE(more);
    const auto config =
        parse(R"("target_modules":["q_proj","lm_head"],"layers_to_transform":[3,5])" + std::string(more));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_TRUE(config->targets(kModule).value());
    EXPECT_TRUE(config->targets("model.layers.5.experts.4.q_proj").value());
    EXPECT_FALSE(config->targets("model.layers.4.experts.5.q_proj").value());
    EXPECT_FALSE(config->targets("model.layers.33.self_attn.q_proj").value());
    EXPECT_FALSE(config->targets("model.q_proj").value());
    EXPECT_TRUE(config->targets("lm_head").value());  // its whole name is in the list
  }
  EXPECT_TRUE(parse(R"("target_modules":["q_proj"],"layers_to_transform":3)").value().targets(kModule).value());
  EXPECT_FALSE(parse(R"("target_modules":["q_proj"],"layers_to_transform":2)").value().targets(kModule).value());
  EXPECT_FALSE(parse(R"("target_modules":["q_proj"],"layers_to_transform":3,"layers_pattern":"h")")
                   .value()
                   .targets(kModule)
                   .value());
}

TEST(PeftConfig, TakesKeysThatChangeNothing) {
  for (const char* keys :
       {R"("init_lora_weights":"gaussian")", R"("init_lora_weights":false)", R"("init_lora_weights":"eva")",
        R"("lora_dropout":0.1,"task_type":"CAUSAL_LM","base_model_name_or_path":"x","revision":"y")",
        R"("eva_config":{"rho":2.0},"megatron_core":"megatron.core","qalora_group_size":16)",
        R"("key_of_a_later_version":null,"another":false,"a_list":[],"an_object":{})"}) {
    const auto config = parse(keys);
    EXPECT_TRUE(config) << config.error().message;
  }
}

TEST(PeftConfig, RefusesMethodsByTheirNames) {
  for (const char* type : {"PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "IA3", "ADALORA", "LOHA"}) {
    const auto config =
        PeftConfig::parse(R"({"peft_type":")" + std::string(type) + "\",\"num_virtual_tokens\":8}", "c");
    ASSERT_FALSE(config);
    EXPECT_EQ(config.error().code, ErrorCode::unsupported);
    EXPECT_THAT(config.error().message, HasSubstr(std::string("peft_type: \"") + type + "\" is not supported"));
  }
  const auto missing = PeftConfig::parse("{}", "c");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("peft_type: is missing"));
}

TEST(PeftConfig, RefusesByNameWhatIsNotSupported) {
  constexpr auto kUnsupported = ErrorCode::unsupported;
  for (const char* key : {"use_qalora", "lora_bias", "ensure_weight_tying", "key_of_a_later_version"}) {
    expect_refused("\"" + std::string(key) + "\":true", kUnsupported, key, "is not supported; its value is true");
  }
  expect_refused(R"("layer_replication":[[0,4],[2,5]])", kUnsupported, "layer_replication", "an array");
  expect_refused(R"("trainable_token_indices":[1])", kUnsupported, "trainable_token_indices", "an array");
  expect_refused(R"("alora_invocation_tokens":[1,2])", kUnsupported, "alora_invocation_tokens", "an array");
  expect_refused(R"("target_parameters":["experts"])", kUnsupported, "target_parameters", "an array");
  for (const char* key : {"megatron_config", "arrow_config", "use_bdlora", "kasa_config", "monteclora_config"}) {
    expect_refused("\"" + std::string(key) + R"(":{"x":1})", kUnsupported, key, "an object");
  }
  for (const char* init : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "other"}) {
    expect_refused(R"("init_lora_weights":")" + std::string(init) + "\"", kUnsupported, "init_lora_weights",
                   "changes the weights of the base model");
  }
  expect_refused(R"("bias":"some")", kUnsupported, "bias", "(none, all, lora_only)");
}

TEST(PeftConfig, RefusesWrongValues) {
  constexpr auto kBad = ErrorCode::bad_config;
  expect_refused(R"("r":0)", kBad, "r", "must be 1 to 512");
  expect_refused(R"("r":513)", kBad, "r", "must be 1 to 512");
  expect_refused(R"("r":"8")", kBad, "r", "whole number");
  expect_refused(R"("lora_alpha":0)", kBad, "lora_alpha", "more than 0.0");
  expect_refused(R"("use_dora":1)", kBad, "use_dora", "true or false");
  expect_refused(R"("target_modules":[1])", kBad, "target_modules", "a list of strings or a pattern");
  expect_refused(R"("target_modules":"(q_proj")", kBad, "target_modules", "the regex is invalid");
  expect_refused(R"("exclude_modules":{})", kBad, "exclude_modules", "a list of strings or a pattern");
  expect_refused(R"("modules_to_save":true)", kBad, "modules_to_save", "a list of strings or a pattern");
  expect_refused(R"("rank_pattern":[1])", kBad, "rank_pattern", "must be an object");
  expect_refused(R"("rank_pattern":{"q":1.5})", kBad, "rank_pattern",
                 "pattern \"q\": the value must be a whole number");
  expect_refused(R"("rank_pattern":{"q":513})", kBad, "rank_pattern", "from 1 to 512");
  expect_refused(R"("rank_pattern":{"[q":1})", kBad, "rank_pattern", "pattern \"[q\": the regex is invalid");
  expect_refused(R"("alpha_pattern":{"q":-1})", kBad, "alpha_pattern", "a number above 0");
  expect_refused(R"("layers_to_transform":[-1])", kBad, "layers_to_transform", "from 0 to");
  expect_refused(R"("layers_to_transform":"1")", kBad, "layers_to_transform", "from 0 to");
  expect_refused(R"("target_modules":"q","layers_to_transform":[1])", kBad, "layers_to_transform", "to be a list");
  expect_refused(R"("layers_to_transform":[1],"layers_pattern":7)", kBad, "layers_pattern", "a list of strings");
  const auto too_large = parse(R"("lora_alpha":1e300)").value().scale_of(kModule, 8);
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("too large"));
}

TEST(PeftConfig, TooManyPatternsAreRefused) {
  std::string patterns;
  for (int i = 0; i < 1'001; ++i) patterns += (i == 0 ? "\"m" : ",\"m") + std::to_string(i) + "\":4";
  expect_refused("\"rank_pattern\":{" + patterns + "}", ErrorCode::bad_config, "rank_pattern",
                 "has more than 1000 patterns");
}

TEST(PeftConfig, APatternThatTakesTooManyStepsIsAnError) {
  const std::string module(100, 'a');
  const auto config =
      parse(R"("target_modules":"(a|aa)+[bc]","rank_pattern":{"(a|aa)+[bc]":1},"alpha_pattern":{"(a|aa)+[bc]":1})")
          .value();
  const auto expect_error = [](const auto& result, const char* key) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::bad_config);
    EXPECT_THAT(result.error().message, HasSubstr("adapter_config.json: " + std::string(key) + ": "));
  };
  expect_error(config.targets(module), "target_modules");
  expect_error(config.rank_of(module), "rank_pattern");
  expect_error(config.scale_of(module, 1), "alpha_pattern");
}

}  // namespace
}  // namespace pagoda::io
