// vLLM's sampling fields through the whole engine: bad_words, allowed_token_ids, logprobs of the vocabulary and of
// chosen tokens, truncate_prompt_tokens, and more sequences than batch rows.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/bad_words.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

class SamplingFields : public testing::Test {
 protected:
  static std::unique_ptr<Engine> engine(const std::function<void(EngineConfig&)>& change = {},
                                        const EngineSetup& setup = {}) {
    EngineConfig config;
    config.model = test::demo_model();
    config.threads = 2;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.kv_cache_dtype = "float32";
    config.cpu_isa = "scalar";
    config.limits.max_logprobs = -1;
    if (change) change(config);
    auto engine = Engine::create(config, setup);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  static const text::Tokenizer& tokenizer() {
    static const auto loaded = io::load_tokenizer(test::demo_model()).value();
    return *loaded;
  }

  static GenerateRequest story(const std::function<void(SamplingParams&)>& change) {
    GenerateRequest request;
    request.prompt = "Once upon a time there was";
    request.sampling.max_tokens = 60;
    request.sampling.temperature = 1.0;
    request.sampling.seed = 11;
    request.sampling.ignore_eos = true;
    change(request.sampling);
    return request;
  }
};

/// How often the tokens of a word stand in an output.
std::size_t count_of(const TokenIds& word, const TokenIds& output) {
  std::size_t count = 0;
  for (auto at = output.begin(); (at = std::search(at, output.end(), word.begin(), word.end())) != output.end(); ++at) {
    ++count;
  }
  return count;
}

TEST_F(SamplingFields, BadWordsAreNotWrittenByAnyStrategyOnAnyDevice) {
  const EngineSetup devices[] = {{}, {.device = std::make_shared<test::SplitMemoryDevice>()}};
  for (const EngineSetup& setup : devices) {
    const auto engine = SamplingFields::engine({}, setup);
    ASSERT_TRUE(engine);
    // Words that the model writes by itself, two of them together.
    const auto greedy = engine->generate(story([](SamplingParams& s) { s.temperature = 0; }));
    ASSERT_TRUE(greedy) << greedy.error().message;
    std::istringstream text(greedy->outputs.at(0).text);
    std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
    ASSERT_GE(words.size(), 8U) << greedy->outputs.at(0).text;
    words.resize(8);
    words[0] += " " + words[1];
    words.erase(words.begin() + 1);
    const auto ids = text::bad_word_tokens(tokenizer(), words).value();
    const std::function<void(SamplingParams&)> strategies[] = {
        [](SamplingParams& s) { s.temperature = 0; }, [](SamplingParams& s) { s.n = 4; },
        [](SamplingParams& s) { s.n = 2, s.best_of = 4, s.repetition_penalty = 1.2; },
        [](SamplingParams& s) { s.temperature = 0, s.use_beam_search = true, s.n = 3; },
        [](SamplingParams& s) {
          s.min_tokens = 60, s.ignore_eos = false, s.repeat_last_n = 1, s.presence_penalty = 1;
        }};
    std::size_t num_without = 0;
    for (const auto& strategy : strategies) {
      const auto free = engine->generate(story(strategy));
      const auto held = engine->generate(story([&](SamplingParams& s) { strategy(s), s.bad_words = words; }));
      ASSERT_TRUE(free && held) << (held ? "" : held.error().message);
      for (const SequenceResult& output : held->outputs) {
        for (const TokenIds& word : ids) EXPECT_EQ(count_of(word, output.token_ids), 0U) << output.text;
      }
      for (const SequenceResult& output : free->outputs) {
        for (const TokenIds& word : ids) num_without += count_of(word, output.token_ids);
      }
    }
    EXPECT_GT(num_without, 10U) << "the model writes them by itself";
  }
}

TEST_F(SamplingFields, OnlyAllowedTokensAreWritten) {
  const EngineSetup devices[] = {{}, {.device = std::make_shared<test::SplitMemoryDevice>()}};
  for (const EngineSetup& setup : devices) {
    const auto engine = SamplingFields::engine({}, setup);
    ASSERT_TRUE(engine);
    const TokenIds some = *tokenizer().encode(" was a little girl who loved the dog", false);
    const std::set<TokenId> allowed(some.begin(), some.end());
    for (const bool beams : {false, true}) {
      const auto result = engine->generate(story([&](SamplingParams& s) {
        s.allowed_token_ids.emplace(some.begin(), some.end());
        s.n = 3;
        s.bad_words = {"dog"};
        if (beams) s.use_beam_search = true, s.temperature = 0;
      }));
      ASSERT_TRUE(result) << result.error().message;
      const auto dog = text::bad_word_tokens(tokenizer(), std::vector<std::string>{"dog"}).value();
      for (const SequenceResult& output : result->outputs) {
        EXPECT_EQ(output.token_ids.size(), 60U);
        for (const TokenId token : output.token_ids) EXPECT_TRUE(allowed.contains(token)) << token;
        for (const TokenIds& word : dog) EXPECT_EQ(count_of(word, output.token_ids), 0U) << output.text;
      }
    }
  }
}

TEST_F(SamplingFields, AGrammarAndTheOtherFieldsHoldTogether) {
  const auto engine = SamplingFields::engine();
  ASSERT_TRUE(engine);
  const auto answer = [&](const std::function<void(SamplingParams&)>& change) {
    return engine->generate(story([&](SamplingParams& s) {
      s.ignore_eos = false;
      s.structured_outputs = {GrammarKind::choice, {}, {"cat", "dog", "owl"}};
      change(s);
    }));
  };
  for (int seed = 0; seed < 8; ++seed) {
    const auto held =
        answer([&](SamplingParams& s) { s.seed = seed, s.bad_words = {"cat", "c", "ca", "owl", "o", "ow"}; });
    ASSERT_TRUE(held) << held.error().message;
    EXPECT_EQ(held->outputs.at(0).text, "dog");
  }
  // Nothing is left: the request fails, others do not.
  const auto none = answer([](SamplingParams& s) { s.allowed_token_ids = {{5}}; });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().param, "allowed_token_ids");
  EXPECT_NE(none.error().message.find("structured_outputs"), std::string::npos) << none.error().message;
}

TEST_F(SamplingFields, LogprobsOfTheWholeVocabularyAreADistribution) {
  const EngineSetup devices[] = {{}, {.device = std::make_shared<test::SplitMemoryDevice>()}};
  for (const EngineSetup& setup : devices) {
    const auto engine = SamplingFields::engine({}, setup);
    ASSERT_TRUE(engine);
    const auto vocab = static_cast<std::size_t>(engine->model_info().vocab_size);
    auto request = story([](SamplingParams& s) { s.logprobs = -1, s.prompt_logprobs = -1, s.max_tokens = 5, s.n = 2; });
    const auto result = engine->generate(request);
    ASSERT_TRUE(result) << result.error().message;
    const auto expect_distribution = [&](const LogprobEntry& entry) {
      ASSERT_EQ(entry.top.size(), vocab);
      double total = 0;
      std::set<TokenId> tokens;
      for (std::size_t i = 0; i < vocab; ++i) {
        total += std::exp(static_cast<double>(entry.top[i].logprob));
        tokens.insert(entry.top[i].token_id);
        if (i > 0) {
          EXPECT_GE(entry.top[i - 1].logprob, entry.top[i].logprob);
        }
      }
      EXPECT_NEAR(total, 1.0, 1e-4);
      EXPECT_EQ(tokens.size(), vocab);
      const auto own = std::ranges::find(entry.top, entry.token_id, &TokenLogprob::token_id);
      EXPECT_EQ(own->logprob, entry.logprob);
    };
    for (const SequenceResult& output : result->outputs) {
      ASSERT_EQ(output.logprobs.value().size(), 5U);
      for (const LogprobEntry& entry : *output.logprobs) expect_distribution(entry);
    }
    EXPECT_EQ(result->prompt_logprobs.value().size(), static_cast<std::size_t>(result->usage.prompt_tokens) - 1);
    for (const LogprobEntry& entry : *result->prompt_logprobs) expect_distribution(entry);
    // The same of a few tokens, which is cheaper.
    request.sampling.prompt_logprobs.reset();
    request.sampling.logprob_token_ids = {{9, 4, 300}};
    const auto few = engine->generate(request);
    ASSERT_TRUE(few) << few.error().message;
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(few->outputs[i].token_ids, result->outputs[i].token_ids);
      for (std::size_t k = 0; k < 5; ++k) {
        const LogprobEntry listed = (*few->outputs[i].logprobs)[k];
        const LogprobEntry all = (*result->outputs[i].logprobs)[k];
        ASSERT_EQ(listed.top.size(), 3U);
        EXPECT_EQ(listed.logprob, all.logprob);
        for (const TokenLogprob& one : listed.top) {
          EXPECT_EQ(std::ranges::find(all.top, one.token_id, &TokenLogprob::token_id)->logprob, one.logprob);
        }
        EXPECT_EQ(listed.top[0].token_id, 9);
        EXPECT_EQ(listed.top[2].token_id, 300);
      }
    }
  }
}

TEST_F(SamplingFields, MoreSequencesThanRowsAreWhatASmallerNGives) {
  const auto engine = SamplingFields::engine();  // 8 rows
  ASSERT_TRUE(engine);
  const auto many = engine->generate(story([](SamplingParams& s) { s.n = 40, s.max_tokens = 12; }));
  ASSERT_TRUE(many) << many.error().message;
  ASSERT_EQ(many->outputs.size(), 40U);
  const auto few = engine->generate(story([](SamplingParams& s) { s.n = 5, s.max_tokens = 12; }));
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(many->outputs[i].index, static_cast<std::int32_t>(i));
    EXPECT_EQ(many->outputs[i].token_ids.size(), 12U);
    if (i < 5) {
      EXPECT_EQ(many->outputs[i].token_ids, few->outputs[i].token_ids);
    }
  }
  const auto beams =
      engine->generate(story([](SamplingParams& s) { s.n = 9, s.use_beam_search = true, s.temperature = 0; }));
  ASSERT_FALSE(beams);
  EXPECT_EQ(beams.error().param, "n");
}

TEST_F(SamplingFields, ATruncatedPromptIsThatOfItsLastTokens) {
  const auto engine = SamplingFields::engine();
  ASSERT_TRUE(engine);
  const std::string text = "Once upon a time there was a little girl named Lily. She loved to play in the park";
  const TokenIds all = *tokenizer().encode(text, true);
  auto request = test::greedy_request(text, 10);
  for (const std::int64_t kept : {3, 8, 1000}) {
    request.truncate_prompt_tokens = std::min<std::int64_t>(kept, 200);
    const auto truncated = engine->generate(request);
    ASSERT_TRUE(truncated) << truncated.error().message;
    const auto num_kept = std::min(static_cast<std::size_t>(kept), all.size());
    GenerateRequest same = request;
    same.truncate_prompt_tokens.reset();
    same.prompt.reset();
    const std::size_t num_added = tokenizer().encode("", true)->size();
    same.prompt_token_ids.emplace(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_added));
    same.prompt_token_ids->insert(same.prompt_token_ids->end(),
                                  all.end() - static_cast<std::ptrdiff_t>(num_kept - num_added), all.end());
    EXPECT_EQ(truncated->usage.prompt_tokens, static_cast<std::int64_t>(num_kept));
    const auto expected = engine->generate(same);
    ASSERT_TRUE(expected) << expected.error().message;
    EXPECT_EQ(truncated->outputs[0].token_ids, expected->outputs[0].token_ids);
  }
}

TEST_F(SamplingFields, BadWordsHoldAlsoWithTokenIdsForAPrompt) {
  const auto engine = SamplingFields::engine();
  ASSERT_TRUE(engine);
  auto request = story([](SamplingParams& s) { s.bad_words = {"the"}, s.temperature = 0; });
  const auto of_text = engine->generate(request);
  const TokenIds ids = *tokenizer().encode(*request.prompt, true);
  request.prompt.reset();
  request.prompt_token_ids.emplace(ids.begin(), ids.end());
  const auto of_ids = engine->generate(request);
  ASSERT_TRUE(of_text && of_ids);
  EXPECT_EQ(of_ids->outputs[0].token_ids, of_text->outputs[0].token_ids);
  request.sampling.bad_words = {"  "};
  EXPECT_EQ(engine->generate(request).error().param, "bad_words");
}

}  // namespace
}  // namespace pagoda
