// Folders of every architecture that GGUF has a name for become GGUF files that are the same model: logits, tokenizer,
// chat prompts, special tokens and recommended sampling are those of the folder.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/quantize_model.hpp"
#include "tests/pagoda/conversion_cases.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using test::change_json;
using test::conversion_options;
using test::Files;
using test::logits_of;
using test::relative_distance;
using test::write_model;
using ::testing::HasSubstr;

class GgufConversion : public ::testing::TestWithParam<test::ConversionCase> {
 protected:
  void SetUp() override {
    write_model(folder_, GetParam().files());
    const auto report = quantize_model(conversion_options(folder_.path(), file_), {});
    ASSERT_TRUE(report) << report.error().message;
    of_folder_ = io::open_model_files(folder_.path()).value();
    of_file_ = io::open_model_files(file_).value();
    const auto contents = io::GgufFile::open(file_);
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_EQ((*contents)->get<std::string_view>("general.architecture").value(), GetParam().architecture);
  }

  test::TemporaryFolder folder_;
  test::TemporaryFolder out_;
  const std::filesystem::path file_ = out_.path() / "model.gguf";
  std::shared_ptr<const io::ModelFiles> of_folder_;
  std::shared_ptr<const io::ModelFiles> of_file_;
};

TEST_P(GgufConversion, KeepsTheModel) {
  const auto wanted = of_folder_->spec();
  const auto spec = of_file_->spec();
  ASSERT_TRUE(wanted && spec);
  EXPECT_EQ(spec->vocab_size, wanted->vocab_size);
  EXPECT_EQ(spec->max_position_embeddings, wanted->max_position_embeddings);
  EXPECT_EQ(spec->bos_token_id.value_or(-1), wanted->bos_token_id.value_or(spec->bos_token_id.value_or(-1)));
  for (const TokenId end : wanted->eos_token_ids) EXPECT_THAT(spec->eos_token_ids, ::testing::Contains(end));

  // Longer than all windows.
  TokenIds tokens;
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) tokens.push_back(static_cast<TokenId>(random() % 340));
  const auto expected = logits_of(folder_.path(), tokens);
  const auto rows = logits_of(file_, tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  ASSERT_EQ(expected.size(), tokens.size());
  double distance = 0;
  double distance_of_another = 0;  // the test would see another model
  std::size_t same_top = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    distance += relative_distance(rows[i], expected[i]) / 60;
    distance_of_another += relative_distance(rows[i], expected[(i + 1) % rows.size()]) / 60;
    const auto top = [](const auto& row) { return std::ranges::max_element(row) - row.begin(); };
    same_top += top(rows[i]) == top(expected[i]) ? 1 : 0;
  }
  EXPECT_LT(distance, 0.06);
  EXPECT_GT(distance_of_another, 0.5);
  EXPECT_GE(same_top, 50);
}

TEST_P(GgufConversion, KeepsTheTokenizer) {
  test::expect_same_tokenizer(folder_.path(), file_);
}

TEST_P(GgufConversion, KeepsChatPromptsAndSampling) {
  test::expect_same_chat_prompts(folder_.path(), file_);
  const auto sampling = [](const io::ModelFiles& files) {
    const SamplingDefaults defaults = files.sampling_defaults().value();
    return std::tuple(defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p,
                      defaults.repetition_penalty);
  };
  EXPECT_EQ(sampling(*of_file_), sampling(*of_folder_));
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufConversion, ::testing::ValuesIn(test::conversion_cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// What the conversion of a folder with these changes says.
std::string conversion_refusal(const char* name, const std::function<void(Files&)>& change) {
  Files files = test::files_of_case(name);
  change(files);
  const test::TemporaryFolder folder;
  write_model(folder, files);
  const auto report = quantize_model(conversion_options(folder.path(), folder.path() / "out.gguf"), {});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out.gguf"));
  return report ? std::string() : report.error().message;
}

TEST(GgufConversionRefused, OfASpaceBeforeTheStartOfATextAlone) {
  EXPECT_THAT(conversion_refusal("mistral",
                                 [](Files& files) {
                                   change_json(files, "tokenizer_config.json", {{"legacy", false}});
                                 }),
              HasSubstr("tokenizer.model: legacy: false"));
}

TEST(GgufConversionRefused, OfATemplateThatAsksForATokenNobodyNames) {
  EXPECT_THAT(conversion_refusal("mistral",
                                 [](Files& files) {
                                   change_json(files, "tokenizer_config.json", {{"bos_token", nullptr}});
                                 }),
              HasSubstr("tokenizer_config.json: a chat template uses bos_token"));
}

}  // namespace
}  // namespace pagoda
