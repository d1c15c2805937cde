#include "io/adapters/prompt_config.hpp"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/adapters/peft_adapter.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

Result<std::optional<PromptConfig>> parse(const std::string& type, const std::string& keys) {
  return PromptConfig::parse(R"({"peft_type":")" + type + R"(",)" + keys + "}", "adapter_config.json");
}

void expect_refused(const std::string& type, const std::string& keys, ErrorCode code, std::string_view key,
                    std::string_view reason) {
  SCOPED_TRACE(type + " " + keys);
  const auto config = parse(type, keys);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_EQ(config.error().param, key);
  EXPECT_THAT(config.error().message, HasSubstr("adapter_config.json: " + std::string(key) + ": "));
  EXPECT_THAT(config.error().message, HasSubstr(std::string(reason)));
}

TEST(PromptConfig, PromptTuningHasEmbeddings) {
  const auto config =
      parse("PROMPT_TUNING", R"("num_virtual_tokens":8,"token_dim":48,"num_layers":2,"num_attention_heads":4,
            "num_transformer_submodules":1,"prompt_tuning_init":"TEXT","prompt_tuning_init_text":"Be kind.",
            "tokenizer_name_or_path":"x","tokenizer_kwargs":{"use_fast":true},"task_type":"CAUSAL_LM",
            "peft_version":"0.21.2","inference_mode":true,"modules_to_save":null)")
          .value()
          .value();
  EXPECT_EQ(config.kind, adapters::VirtualTokens::Kind::embeddings);
  EXPECT_EQ(config.num_virtual_tokens, 8);
  EXPECT_EQ(config.columns, 48);
  EXPECT_EQ(config.num_heads, 0);
}

TEST(PromptConfig, TheEncoderOfPTuningIsNotNeeded) {
  const auto config = parse("P_TUNING", R"("num_virtual_tokens":3,"encoder_reparameterization_type":"LSTM",
                                          "encoder_hidden_size":20,"encoder_num_layers":3,"encoder_dropout":0.1)")
                          .value()
                          .value();
  EXPECT_EQ(config.kind, adapters::VirtualTokens::Kind::embeddings);
  EXPECT_EQ(config.num_virtual_tokens, 3);
  EXPECT_FALSE(config.columns);
}

TEST(PromptConfig, APrefixHasKeysAndValuesOfEachLayer) {
  const auto config = parse("PREFIX_TUNING", R"("num_virtual_tokens":5,"token_dim":16,"num_layers":3,
                            "num_attention_heads":2,"encoder_hidden_size":9,"prefix_projection":true,
                            "init_weights":null)")
                          .value()
                          .value();
  EXPECT_EQ(config.kind, adapters::VirtualTokens::Kind::prefix);
  EXPECT_EQ(config.columns, 3 * 2 * 16);
  EXPECT_EQ(config.num_heads, 2);
  const auto without_layers = parse("PREFIX_TUNING", R"("num_virtual_tokens":5,"token_dim":16,"num_layers":null)");
  EXPECT_FALSE(without_layers.value().value().columns);
}

TEST(PromptConfig, OtherMethodsAreNotItsOwn) {
  for (const char* type : {"LORA", "CPT", "CARTRIDGE", "MULTITASK_PROMPT_TUNING", ""}) {
    EXPECT_FALSE(parse(type, R"("num_virtual_tokens":5,"what":1)").value()) << type;
  }
}

TEST(PromptConfig, RefusesKeysByTheirName) {
  const std::string tokens = R"("num_virtual_tokens":4)";
  expect_refused("PROMPT_TUNING", R"("token_dim":8)", ErrorCode::bad_config, "num_virtual_tokens", "");
  expect_refused("PROMPT_TUNING", R"("num_virtual_tokens":0)", ErrorCode::bad_config, "num_virtual_tokens", "");
  expect_refused("P_TUNING", R"("num_virtual_tokens":100001)", ErrorCode::bad_config, "num_virtual_tokens", "");
  expect_refused("P_TUNING", R"("num_virtual_tokens":"8")", ErrorCode::bad_config, "num_virtual_tokens", "");
  expect_refused("PREFIX_TUNING", tokens + R"(,"num_transformer_submodules":2)", ErrorCode::unsupported,
                 "num_transformer_submodules", "only 1");
  expect_refused("PREFIX_TUNING", tokens + R"(,"token_dim":10,"num_attention_heads":3)", ErrorCode::bad_config,
                 "token_dim", "10 is no multiple of the 3 heads");
  expect_refused("PROMPT_TUNING", tokens + R"(,"modules_to_save":["lm_head"])", ErrorCode::unsupported,
                 "modules_to_save", "is not supported");
  expect_refused("PROMPT_TUNING", tokens + R"(,"r":8)", ErrorCode::unsupported, "r", "its value is 8");
  expect_refused("PREFIX_TUNING", tokens + R"(,"num_layers":-1)", ErrorCode::bad_config, "num_layers", "");
}

/// A prompt adapter with one tensor F32.
class PromptFolder : public ::testing::Test {
 protected:
  Result<adapters::Adapter> read(const std::string& type, const std::string& keys, const std::string& tensor,
                                 std::int64_t rows, std::int64_t columns) const {
    folder_.write("adapter_config.json", R"({"peft_type":")" + type + R"(","num_virtual_tokens":3)" + keys + "}");
    const auto bytes = static_cast<std::size_t>(rows * columns * 4);
    const std::string header = "{\"" + tensor + R"(":{"dtype":"F32","shape":[)" + std::to_string(rows) + "," +
                               std::to_string(columns) + R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    folder_.write("adapter_model.safetensors", test::safetensors_file(header, bytes));
    return read_peft_adapter(folder_.path());
  }

  void expect_refused(const Result<adapters::Adapter>& adapter, ErrorCode code, const std::string& reason) const {
    ASSERT_FALSE(adapter);
    EXPECT_EQ(adapter.error().code, code);
    EXPECT_THAT(adapter.error().message, HasSubstr("adapter_model.safetensors: "));
    EXPECT_THAT(adapter.error().message, HasSubstr(reason));
  }

  const test::TemporaryFolder folder_;
};

TEST_F(PromptFolder, HasTheRowsOfItsVirtualTokens) {
  const auto adapter =
      read("PREFIX_TUNING", R"(,"token_dim":4,"num_layers":2,"num_attention_heads":1)", "prompt_embeddings", 3, 16);
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_TRUE(adapter->changes.empty());
  EXPECT_EQ(adapter->num_virtual_tokens(), 3);
  EXPECT_EQ(adapter->prompt->kind, adapters::VirtualTokens::Kind::prefix);
  EXPECT_EQ(adapter->prompt->rows.columns, 16);
  EXPECT_EQ(adapter->prompt->num_heads, 1);
}

TEST_F(PromptFolder, ShapesAreThoseOfTheConfig) {
  expect_refused(read("PROMPT_TUNING", "", "prompt_embeddings", 4, 8), ErrorCode::bad_file,
                 "its 4 rows are not the 3 tokens of the config");
  expect_refused(read("PROMPT_TUNING", R"(,"token_dim":7)", "prompt_embeddings", 3, 8), ErrorCode::bad_file,
                 "its 8 columns are not the 7 of the config (token_dim)");
  expect_refused(read("PREFIX_TUNING", R"(,"token_dim":4,"num_layers":3)", "prompt_embeddings", 3, 16),
                 ErrorCode::bad_file, "its 16 columns are not the 24 of the config (num_layers * 2 * token_dim)");
}

TEST_F(PromptFolder, HasOneTensor) {
  expect_refused(read("P_TUNING", "", "base_model.model.lm_head.weight", 3, 8), ErrorCode::unsupported,
                 "tensor \"base_model.model.lm_head.weight\": a prompt adapter has only the tensor");
}

}  // namespace
}  // namespace pagoda::io
