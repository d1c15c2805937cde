// Tests a real trained model and its greedy texts, which are outside the repository.

#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/models/model_runner.hpp"

namespace pagoda::models {
namespace {

using test::ModelRunner;

class Stories : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << folder_ << " is not there";
    std::ifstream file(PAGODA_SHARED_DIR "/goldens/stories260k_greedy.json");
    golden_ = nlohmann::json::parse(file);
  }

  const std::filesystem::path folder_ = PAGODA_SHARED_DIR "/models/stories260k";
  nlohmann::json golden_;
};

TEST_F(Stories, GreedyTextsOfABatchAreThoseOfTheReference) {
  ModelRunner runner(folder_, {.num_threads = 2});
  struct Sequence {
    int id = 0;
    TokenIds tokens;
    std::vector<double> logprobs;
    ModelRunner::Chunk next;
  };
  std::vector<Sequence> sequences;
  for (const auto& story : golden_) {
    const int id = runner.add_sequence();
    sequences.push_back({id, {}, {}, {id, story.at("prompt_token_ids").get<TokenIds>()}});
  }
  const auto length = golden_.front().at("token_ids").size();
  for (std::size_t step = 0; step < length; ++step) {
    std::vector<ModelRunner::Chunk> batch;
    for (const auto& sequence : sequences) batch.push_back(sequence.next);
    const auto logits = runner.run(batch);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      auto& sequence = sequences[i];
      const auto& last = logits[i].back();
      sequence.tokens.push_back(test::argmax(last));
      sequence.logprobs.push_back(test::logprob(last, sequence.tokens.back()));
      sequence.next.tokens = {sequence.tokens.back()};
    }
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(sequences[i].tokens, golden_.at(i).at("token_ids").get<TokenIds>()) << golden_.at(i).at("prompt");
    const auto expected = golden_.at(i).at("logprobs").get<std::vector<double>>();
    for (std::size_t step = 0; step < length; ++step) EXPECT_NEAR(sequences[i].logprobs[step], expected[step], 2e-3);
  }
}

TEST_F(Stories, PromptLogprobsAreThoseOfTheReferenceInChunksToo) {
  for (const std::size_t chunk : {1, 3, 64}) {
    ModelRunner runner(folder_, {.block_size = 4});
    for (const auto& story : golden_) {
      const auto prompt = story.at("prompt_token_ids").get<TokenIds>();
      const int sequence = runner.add_sequence();
      ModelRunner::Rows rows;
      for (std::size_t begin = 0; begin < prompt.size(); begin += chunk) {
        const auto end = std::min(begin + chunk, prompt.size());
        const auto part = runner.run(sequence, TokenIds(prompt.begin() + static_cast<std::ptrdiff_t>(begin),
                                                        prompt.begin() + static_cast<std::ptrdiff_t>(end)));
        rows.insert(rows.end(), part.begin(), part.end());
      }
      const auto& expected = story.at("prompt_logprobs");
      for (std::size_t i = 1; i < prompt.size(); ++i) {
        EXPECT_NEAR(test::logprob(rows[i - 1], prompt[i]), expected.at(i).get<double>(), 2e-3) << story.at("prompt");
      }
    }
  }
}

TEST_F(Stories, ABfloat16CacheChangesLogprobsOnlyByItsRounding) {
  ModelRunner exact(folder_);
  ModelRunner rounded(folder_, {.kv_dtype = DType::bf16});
  const auto prompt = golden_.front().at("prompt_token_ids").get<TokenIds>();
  const auto a = exact.run(exact.add_sequence(), prompt).back();
  const auto b = rounded.run(rounded.add_sequence(), prompt).back();
  const auto token = test::argmax(a);
  EXPECT_EQ(test::argmax(b), token);
  EXPECT_NE(a, b);
  EXPECT_NEAR(test::logprob(a, token), test::logprob(b, token), 0.02);
}

}  // namespace
}  // namespace pagoda::models
