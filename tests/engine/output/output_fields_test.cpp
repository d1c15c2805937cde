// Tests fields that change the reports of tokens, but not the tokens: detokenize, stream_interval, logprob_token_ids.

#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/output/output_core.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::output {
namespace {

std::shared_ptr<const text::Tokenizer> stories_tokenizer() {
  static const auto loaded = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

SharedSpec spec_with(const std::function<void(SamplingParams&)>& change, bool stream = true) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = 1;
  spec->prompt = std::make_shared<const TokenIds>(*stories_tokenizer()->encode("Once", false));
  spec->sampling.max_tokens = 100;
  spec->stream = stream;
  change(spec->sampling);
  return spec;
}

/// Returns the outputs of a request for the tokens of a text, with `per_step` tokens in each step.
std::vector<RequestOutput> outputs_of(const SharedSpec& spec, const std::string& text, std::size_t per_step = 1) {
  OutputCore core(stories_tokenizer());
  EXPECT_TRUE(core.open(spec));
  const TokenIds ids = *stories_tokenizer()->encode(text, false);
  std::vector<RequestOutput> all;
  for (std::size_t first = 0; first < ids.size(); first += per_step) {
    StepOutputs step;
    for (std::size_t i = first; i < std::min(first + per_step, ids.size()); ++i) {
      SequenceOutput& output = step.outputs.emplace_back();
      output.request = 1;
      output.token = TokenReport{ids[i], -0.5F, 2, {{7, -1.0F}, {3, -2.0F}}};
      if (i + 1 == ids.size()) output.finished = FinishReason::length;
    }
    for (auto& output : core.process(step, 5).outputs) all.push_back(std::move(output));
  }
  EXPECT_TRUE(all.back().done);
  return all;
}

std::vector<std::size_t> delta_sizes(const std::vector<RequestOutput>& outputs) {
  std::vector<std::size_t> sizes;
  for (const RequestOutput& output : outputs) {
    for (const SequenceDelta& delta : output.deltas) sizes.push_back(delta.token_ids.size());
  }
  return sizes;
}

constexpr const char* kStory = " was a little girl who loved to play with her big red ball all day long in the park";

TEST(OutputFields, AStreamHasItsFirstTokenAloneAndThenAsManyAsTheInterval) {
  for (const std::int64_t interval : {1, 2, 3, 7, 1000}) {
    const auto spec = spec_with([&](SamplingParams& s) { s.stream_interval = interval, s.logprobs = 2; });
    const auto outputs = outputs_of(spec, kStory);
    const SequenceResult& whole = outputs.back().done->outputs.at(0);
    const auto sizes = delta_sizes(outputs);
    ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), whole.token_ids.size());
    EXPECT_EQ(sizes.front(), 1U);
    for (std::size_t i = 1; i + 1 < sizes.size(); ++i) EXPECT_EQ(sizes[i], static_cast<std::size_t>(interval));
    std::string text;
    Logprobs logprobs;
    for (const RequestOutput& output : outputs) {
      for (const SequenceDelta& delta : output.deltas) {
        text += delta.text;
        ASSERT_EQ(delta.logprobs.size(), delta.token_ids.size());
        logprobs.add(delta.logprobs);
      }
    }
    EXPECT_EQ(text, whole.text);
    EXPECT_EQ(encode(logprobs), encode(*whole.logprobs));
    for (const std::size_t per_step : {2U, 5U}) {
      EXPECT_EQ(delta_sizes(outputs_of(spec, kStory, per_step)), sizes) << "however many tokens a step brings";
    }
  }
}

TEST(OutputFields, WithoutDetokenizeThereAreTokensAndNoText) {
  const auto outputs = outputs_of(spec_with([](SamplingParams& s) { s.detokenize = false; }), kStory);
  const SequenceResult& whole = outputs.back().done->outputs.at(0);
  EXPECT_EQ(whole.text, "");
  EXPECT_EQ(whole.token_ids, *stories_tokenizer()->encode(kStory, false));
  EXPECT_EQ(delta_sizes(outputs), std::vector<std::size_t>(whole.token_ids.size(), 1));
}

TEST(OutputFields, LogprobsOfChosenTokensComeAlsoWithoutLogprobs) {
  const auto outputs = outputs_of(spec_with([](SamplingParams& s) { s.logprob_token_ids = {{7, 3}}; }), kStory);
  const SequenceResult& whole = outputs.back().done->outputs.at(0);
  ASSERT_EQ(whole.logprobs.value().size(), whole.token_ids.size());
  EXPECT_EQ(whole.logprobs->front().top[0], (TokenLogprob{7, -1.0F}));
  EXPECT_EQ(outputs.front().deltas.at(0).logprobs.front().top[1], (TokenLogprob{3, -2.0F}));
  EXPECT_NEAR(whole.cumulative_logprob.value(), -0.5 * static_cast<double>(whole.token_ids.size()), 1e-9);
}

TEST(OutputFields, LogprobsOfBytesThatDoNotFitAreNotSound) {
  Logprobs logprobs;
  logprobs.add(TokenReport{5, -1.0F, 1, {{5, -1.0F}, {6, -2.0F}}}, 0);
  EXPECT_TRUE(logprobs.is_valid());
  std::vector<std::byte> bytes = encode(logprobs);
  Logprobs read;
  ASSERT_TRUE(decode(bytes, read));
  EXPECT_EQ(encode(read), bytes);
  EXPECT_TRUE(read.is_valid());
  int num_invalid = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> other = bytes;
    other[i] ^= std::byte{2};
    Logprobs changed;
    if (decode(other, changed) && !changed.is_valid()) ++num_invalid;
  }
  EXPECT_GE(num_invalid, 1) << "where the entries of a position end";
}

}  // namespace
}  // namespace pagoda::output
