#include "engine/output/output_core.hpp"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "io/model_files/model_files.hpp"

namespace pagoda::output {
namespace {

/// Returns the tokenizer of the demo model: byte-level, so every text has tokens.
std::shared_ptr<const text::Tokenizer> tokenizer() {
  static const auto loaded = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

class OutputCoreTest : public ::testing::Test {
 protected:
  SharedSpec open(RequestId id, const std::function<void(RequestSpec&)>& change = {}) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->tag = id + 100;
    spec->prompt = std::make_shared<const TokenIds>(*tokenizer()->encode("Once", false));
    spec->sampling.max_tokens = 100;
    spec->arrival_us = 1000;
    if (change) change(*spec);
    EXPECT_TRUE(core_.open(spec));
    return spec;
  }

  static SequenceOutput token(RequestId id, TokenId token, std::int32_t index = 0) {
    SequenceOutput output;
    output.request = id;
    output.sequence_index = index;
    output.token = TokenReport{token, -0.5F, 2, {{token + 1, -0.25F}}};
    return output;
  }

  /// Runs one step per token of `text`. Returns the outputs for the sink.
  std::vector<RequestOutput> feed(RequestId id, const std::string& text) {
    std::vector<RequestOutput> all;
    const TokenIds ids = *tokenizer()->encode(text, false);
    for (const TokenId t : ids) {
      auto effects = step({token(id, t)});
      stop_hits_.insert(stop_hits_.end(), effects.stop_hits.begin(), effects.stop_hits.end());
      all.insert(all.end(), effects.outputs.begin(), effects.outputs.end());
    }
    return all;
  }

  OutputCore::Effects step(std::vector<SequenceOutput> outputs, std::vector<RequestEnd> ends = {}) {
    StepOutputs message;
    message.finished_us = 3000;
    message.outputs = std::move(outputs);
    message.ends = std::move(ends);
    return core_.process(message, 5000);
  }

  OutputCore core_{tokenizer()};
  std::vector<StopHit> stop_hits_;
};

std::string text_of(const std::vector<RequestOutput>& outputs) {
  std::string text;
  for (const RequestOutput& output : outputs) {
    for (const SequenceDelta& delta : output.deltas) text += delta.text;
  }
  return text;
}

TEST_F(OutputCoreTest, AStopStringAcrossTokensEndsTheSequenceBeforeItAndTellsTheScheduler) {
  open(1, [](RequestSpec& s) { s.sampling.stop = {"the end", "fox and"}; });
  const auto outputs = feed(1, " was a fox and a bear");
  ASSERT_TRUE(outputs.back().done);
  const SequenceResult& result = outputs.back().done->outputs.at(0);
  EXPECT_EQ(result.text, " was a ");
  EXPECT_EQ(text_of(outputs), result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(std::get<std::string>(result.stop_reason), "fox and");
  ASSERT_EQ(stop_hits_.size(), 1U);
  EXPECT_EQ(stop_hits_[0].request, 1U);
  EXPECT_EQ(core_.num_open(), 0U);
  EXPECT_TRUE(step({token(1, 40)}).outputs.empty()) << "nothing follows the terminal output";
}

TEST_F(OutputCoreTest, TellsHowMuchTextEachTokenHasCompleted) {
  open(1, [](RequestSpec& s) { s.sampling.stop = {"zzz"}; });
  const auto outputs = feed(1, " a fox \xe2\x82\xac and z");
  const auto effects = step({}, {{1, std::nullopt}});
  ASSERT_EQ(effects.outputs.size(), 1U);
  const SequenceResult& result = effects.outputs[0].done->outputs.at(0);
  std::vector<std::uint64_t> ends;
  for (const RequestOutput& output : outputs) {
    for (const SequenceDelta& delta : output.deltas) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + delta.text.size());
    }
  }
  EXPECT_EQ(result.text_ends, ends);
  EXPECT_EQ(result.text_ends.size(), result.token_ids.size());
  EXPECT_LT(result.text_ends.back(), result.text.size()) << "what may be a stop string waited for the end";
}

TEST_F(OutputCoreTest, TheStopStringIsKeptWhenAskedFor) {
  open(1, [](RequestSpec& s) {
    s.sampling.stop = {"fox"};
    s.sampling.include_stop_str_in_output = true;
  });
  const auto outputs = feed(1, " was a fox and");
  EXPECT_EQ(outputs.back().done->outputs.at(0).text, " was a fox");
}

TEST_F(OutputCoreTest, AStopStringDoesNotCountBeforeMinTokens) {
  open(1, [](RequestSpec& s) {
    s.sampling.stop = {"a"};
    s.sampling.min_tokens = 1000;
    s.sampling.max_tokens = 2000;
  });
  const auto outputs = feed(1, " a fox and a bear");
  EXPECT_FALSE(outputs.back().done);
}

TEST_F(OutputCoreTest, HeldBackTextComesOutWhenTheSequenceEndsByLength) {
  open(1, [](RequestSpec& s) { s.sampling.stop = {"fox and a bear"}; });
  const TokenIds ids = *tokenizer()->encode(" was a fox and", false);
  std::vector<RequestOutput> all;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    SequenceOutput output = token(1, ids[i]);
    if (i + 1 == ids.size()) output.finished = FinishReason::length;
    auto effects = step({output});
    all.insert(all.end(), effects.outputs.begin(), effects.outputs.end());
  }
  ASSERT_TRUE(all.back().done);
  EXPECT_EQ(all.back().done->outputs.at(0).text, " was a fox and");
  EXPECT_EQ(text_of(all), " was a fox and");
  EXPECT_EQ(all.back().done->outputs.at(0).finish_reason, FinishReason::length);
}

TEST_F(OutputCoreTest, TheTokenThatStopsASequenceCountsButLeavesNoText) {
  open(1);
  const TokenIds ids = *tokenizer()->encode(" fox", false);
  SequenceOutput output = token(1, ids.at(0));
  output.finished = FinishReason::stop;
  output.stop_token = ids.at(0);
  const auto effects = step({output});
  const SequenceResult& result = effects.outputs.at(0).done->outputs.at(0);
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.token_ids, TokenIds{ids.at(0)});
  EXPECT_EQ(std::get<TokenId>(result.stop_reason), ids.at(0));
  EXPECT_EQ(effects.outputs.at(0).done->usage.completion_tokens, 1);
}

TEST_F(OutputCoreTest, WhatAGrammarLetBeWrittenIsAllText) {
  TokenId special = 0;
  while (!tokenizer()->is_special(special)) ++special;
  const auto hold = [](RequestSpec& s) {
    s.sampling.structured_outputs.emplace();
    s.sampling.include_stop_str_in_output = true;
  };
  open(1);
  open(2, hold);
  EXPECT_EQ(text_of(step({token(1, special)}).outputs), "");
  EXPECT_EQ(text_of(step({token(2, special)}).outputs), *tokenizer()->special_text(special));
  SequenceOutput end = token(2, special);
  end.finished = FinishReason::stop;
  const auto effects = step({end});
  EXPECT_EQ(effects.outputs.at(0).done->outputs.at(0).text, *tokenizer()->special_text(special)) << "but its end";
}

TEST_F(OutputCoreTest, TokensThatMayBeMarksAreTextButNotTheOneThatEndsTheAnswer) {
  TokenId special = 0;
  while (!tokenizer()->is_special(special)) ++special;
  for (const bool skips : {true, false}) {
    const RequestId id = skips ? 1 : 2;
    open(id, [&](RequestSpec& s) {
      s.sampling.shows_marks = true;
      s.sampling.skip_special_tokens = skips;
      s.sampling.include_stop_str_in_output = true;
    });
    const std::string text = *tokenizer()->special_text(special);
    EXPECT_EQ(text_of(step({token(id, special)}).outputs), text);
    SequenceOutput end = token(id, special);
    end.finished = FinishReason::stop;
    const auto effects = step({end});
    EXPECT_EQ(effects.outputs.at(0).done->outputs.at(0).text, skips ? text : text + text);
  }
}

TEST_F(OutputCoreTest, HalfACharacterWaitsForItsOtherHalf) {
  open(1);
  const TokenIds ids = *tokenizer()->encode("\xC3\xA9", false);
  if (ids.size() < 2) GTEST_SKIP() << "the demo tokenizer has this character as one token";
  auto first = step({token(1, ids[0])});
  EXPECT_EQ(text_of(first.outputs), "");
  auto second = step({token(1, ids[1])});
  EXPECT_EQ(text_of(second.outputs), "\xC3\xA9");
}

TEST_F(OutputCoreTest, OneOutputPerRequestAndStepCarriesAllItsSequences) {
  open(1, [](RequestSpec& s) { s.sampling.n = 2; });
  open(2);
  const auto effects = step({token(1, 50, 0), token(2, 51), token(1, 52, 1)});
  ASSERT_EQ(effects.outputs.size(), 2U);
  EXPECT_EQ(effects.outputs[0].request_id, 1U);
  EXPECT_EQ(effects.outputs[0].tag, 101U);
  EXPECT_EQ(effects.outputs[0].deltas.size(), 2U);
  EXPECT_EQ(effects.outputs[1].deltas.size(), 1U);
}

TEST_F(OutputCoreTest, TokensOfOneStepAreToldAsThoseOfSeveral) {
  const auto stops_at = [](RequestSpec& s) { s.sampling.stop = {"fox"}; };
  open(1, stops_at);
  open(2, stops_at);
  const auto one_by_one = feed(1, " was a small fox and a bear");
  std::vector<SequenceOutput> together;
  const TokenIds ids = *tokenizer()->encode(" was a small fox and a bear", false);
  for (const TokenId t : ids) together.push_back(token(2, t));
  const auto effects = step(together);
  ASSERT_EQ(effects.outputs.size(), 1U);
  std::vector<SequenceDelta> deltas;
  for (const RequestOutput& output : one_by_one)
    deltas.insert(deltas.end(), output.deltas.begin(), output.deltas.end());
  EXPECT_GT(deltas.size(), 3U);
  ASSERT_EQ(effects.outputs[0].deltas.size(), deltas.size());
  for (std::size_t i = 0; i < deltas.size(); ++i) {
    const SequenceDelta& delta = effects.outputs[0].deltas[i];
    EXPECT_EQ(delta.token_ids, deltas[i].token_ids);
    EXPECT_EQ(delta.text, deltas[i].text);
    EXPECT_EQ(delta.ended, deltas[i].ended);
  }
  ASSERT_TRUE(effects.outputs[0].done);
  EXPECT_EQ(effects.outputs[0].done->outputs[0].text, one_by_one.back().done->outputs[0].text);
  EXPECT_EQ(effects.stop_hits.size(), 1U);
}

TEST_F(OutputCoreTest, WithoutStreamOnlyTheTerminalOutputIsSent) {
  open(1, [](RequestSpec& s) { s.stream = false; });
  EXPECT_TRUE(feed(1, " was a fox").empty());
  SequenceOutput last = token(1, 60);
  last.finished = FinishReason::length;
  const auto effects = step({last});
  ASSERT_EQ(effects.outputs.size(), 1U);
  EXPECT_TRUE(effects.outputs[0].deltas.empty());
  EXPECT_TRUE(effects.outputs[0].done);
}

TEST_F(OutputCoreTest, AnAbortedRequestEndsWithWhatItHas) {
  open(1, [](RequestSpec& s) { s.sampling.n = 2; });
  feed(1, " was");
  const auto effects = step({}, {RequestEnd{1, std::nullopt}});
  ASSERT_EQ(effects.outputs.size(), 1U);
  const RequestResult& result = *effects.outputs[0].done;
  EXPECT_EQ(result.outputs.at(0).finish_reason, FinishReason::abort);
  EXPECT_EQ(result.outputs.at(0).text, " was");
  EXPECT_EQ(result.outputs.at(1).finish_reason, FinishReason::abort);
}

TEST_F(OutputCoreTest, AFailedRequestEndsWithItsError) {
  open(1);
  const auto effects = step({}, {RequestEnd{1, Error{ErrorCode::internal, "broken"}}});
  ASSERT_EQ(effects.outputs.size(), 1U);
  EXPECT_EQ(effects.outputs[0].error->message, "broken");
  EXPECT_FALSE(effects.outputs[0].done);
}

/// Returns three sequences: the first has the highest logprob per token, the second the highest sum, the third neither.
std::vector<SequenceOutput> three_sequences(RequestId id, const std::function<SequenceOutput(std::int32_t)>& token) {
  std::vector<SequenceOutput> all;
  const auto add = [&](std::int32_t index, float logprob, bool ends) {
    SequenceOutput output = token(index);
    output.request = id;
    output.token->logprob = logprob;
    if (ends) output.finished = FinishReason::length;
    all.push_back(std::move(output));
  };
  for (int i = 1; i <= 4; ++i) add(0, -0.5F, i == 4);
  add(1, -1.0F, true);
  for (int i = 1; i <= 3; ++i) add(2, -1.0F, i == 3);
  return all;
}

std::vector<std::int32_t> indices_of(const RequestResult& result) {
  std::vector<std::int32_t> indices;
  for (const SequenceResult& output : result.outputs) indices.push_back(output.index);
  return indices;
}

TEST_F(OutputCoreTest, BestOfKeepsTheHighestSumsOfLogprobsAndNumbersThemAnew) {
  open(1, [](RequestSpec& s) { s.sampling.n = 2, s.sampling.best_of = 3; });
  const auto effects = step(three_sequences(1, [](std::int32_t index) { return token(1, 60 + index, index); }));
  const RequestResult& result = effects.outputs.at(0).done.value();
  EXPECT_EQ(indices_of(result), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(result.outputs[0].token_ids, TokenIds(1, 61)) << "as vLLM ranks: by the sum, not by the mean";
  EXPECT_EQ(result.outputs[1].token_ids, TokenIds(4, 60));
  EXPECT_DOUBLE_EQ(result.outputs[0].cumulative_logprob.value(), -1.0);
  EXPECT_EQ(result.usage.completion_tokens, 4 + 1 + 3) << "those of the third were computed too";
}

TEST_F(OutputCoreTest, BestOfNReturnsAllBestFirstUnderTheIndicesOfTheirDeltas) {
  open(1, [](RequestSpec& s) { s.sampling.n = 3, s.sampling.best_of = 3; });
  const auto effects = step(three_sequences(1, [](std::int32_t index) { return token(1, 60 + index, index); }));
  const RequestOutput& output = effects.outputs.at(0);
  EXPECT_EQ(indices_of(output.done.value()), (std::vector<std::int32_t>{1, 0, 2}));
  for (const SequenceResult& each : output.done->outputs) {
    TokenIds told;
    for (const SequenceDelta& delta : output.deltas) {
      if (delta.index == each.index) told.insert(told.end(), delta.token_ids.begin(), delta.token_ids.end());
    }
    EXPECT_EQ(told, each.token_ids);
    EXPECT_TRUE(each.cumulative_logprob);
  }
}

TEST_F(OutputCoreTest, WithNAloneOutputsComeByIndexAndNoLogprobIsTold) {
  open(1, [](RequestSpec& s) { s.sampling.n = 3; });
  const auto effects = step(three_sequences(1, [](std::int32_t index) { return token(1, 60 + index, index); }));
  const RequestResult& result = effects.outputs.at(0).done.value();
  EXPECT_EQ(indices_of(result), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_FALSE(result.outputs[0].cumulative_logprob);
}

TEST_F(OutputCoreTest, ASequenceThatWasAbortedWithoutATokenIsTheWorst) {
  open(1, [](RequestSpec& s) { s.sampling.n = 2, s.sampling.best_of = 2; });
  step({token(1, 60, 1)});
  const auto effects = step({}, {RequestEnd{1, std::nullopt}});
  EXPECT_EQ(indices_of(effects.outputs.at(0).done.value()), (std::vector<std::int32_t>{1, 0}));
}

TEST_F(OutputCoreTest, LogprobEntriesCarryTokenTextAndSumUp) {
  open(1, [](RequestSpec& s) { s.sampling.logprobs = 1; });
  feed(1, " was");
  const auto effects = step({}, {RequestEnd{1, std::nullopt}});
  const SequenceResult& result = effects.outputs.at(0).done->outputs.at(0);
  ASSERT_EQ(result.logprobs->size(), result.token_ids.size());
  const LogprobEntry entry = result.logprobs->front();
  EXPECT_EQ(result.logprobs->text_of(entry.token_id), tokenizer()->token_piece_text(entry.token_id));
  EXPECT_EQ(entry.rank, 2);
  EXPECT_EQ(entry.top[0].token_id, entry.token_id + 1);
  EXPECT_NEAR(*result.cumulative_logprob, -0.5 * static_cast<double>(result.token_ids.size()), 1e-9);
}

TEST_F(OutputCoreTest, BytesOfPartsOfACharacterAreThoseOfTheText) {
  const std::string text = " caf\xc3\xa9 \xf0\x9f\x98\x80!";
  open(1, [](RequestSpec& s) { s.sampling.logprobs = 1; });
  feed(1, text);
  const auto effects = step({}, {RequestEnd{1, std::nullopt}});
  std::string bytes;
  std::size_t num_parts = 0;
  const Logprobs& logprobs = effects.outputs.at(0).done->outputs.at(0).logprobs.value();
  for (const LogprobEntry& entry : logprobs) {
    bytes += logprobs.bytes_of(entry.token_id);
    if (logprobs.bytes_of(entry.token_id) != logprobs.text_of(entry.token_id)) ++num_parts;
  }
  EXPECT_EQ(bytes, text);
  EXPECT_GE(num_parts, 2U) << "the smile is more than one token";
}

TEST_F(OutputCoreTest, TokensHaveTheirPlaceInTheText) {
  open(1, [](RequestSpec& s) {
    s.sampling.logprobs = 0;
    s.sampling.stop = {"\xf0\x9f\x98\x80 never"};  // holds text back, which does not change positions
  });
  const auto outputs = feed(1, " caf\xc3\xa9 \xf0\x9f\x98\x80 now");
  const auto effects = step({}, {RequestEnd{1, std::nullopt}});
  const SequenceResult& result = effects.outputs.at(0).done->outputs.at(0);
  std::vector<std::int64_t> streamed;
  for (const RequestOutput& output : outputs) {
    for (const SequenceDelta& delta : output.deltas) {
      for (const LogprobEntry& entry : delta.logprobs) streamed.push_back(entry.text_offset);
    }
  }
  text::IncrementalDetokenizer detokenizer(tokenizer(), true, *tokenizer()->encode("Once", false));
  std::vector<std::int64_t> places;
  std::string text;
  for (const TokenId id : result.token_ids) {
    places.push_back(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    text += detokenizer.push(id);
  }
  EXPECT_EQ(streamed, places);
  std::vector<std::int64_t> whole;
  for (const LogprobEntry& entry : *result.logprobs) whole.push_back(entry.text_offset);
  EXPECT_EQ(whole, places);
  EXPECT_EQ(std::ranges::count(places, 6), 4) << "the bytes of the smile have one place: " << text;
}

TEST_F(OutputCoreTest, TokensOfAPromptHaveTheirPlaceInIt) {
  const auto spec = open(1, [](RequestSpec& s) {
    s.prompt = std::make_shared<const TokenIds>(*tokenizer()->encode("caf\xc3\xa9 \xf0\x9f\x98\x80 now", false));
    s.sampling.prompt_logprobs = 0;
  });
  StepOutputs known;
  known.finished_us = 3000;
  known.prompt_logprobs = {{1, {}}};
  for (std::size_t i = 1; i < spec->prompt->size(); ++i) {
    known.prompt_logprobs[0].tokens.push_back(TokenReport{(*spec->prompt)[i], -0.5F, 1, {}});
  }
  known.ends = {{1, std::nullopt}};
  const auto effects = core_.process(known, 5000);
  std::int64_t last = 0;
  std::size_t at_smile = 0;
  const Logprobs& logprobs = effects.outputs.at(0).done->prompt_logprobs.value();
  for (const LogprobEntry& entry : logprobs) {
    EXPECT_GE(entry.text_offset, last);
    last = entry.text_offset;
    const bool is_part = logprobs.bytes_of(entry.token_id) != logprobs.text_of(entry.token_id);
    if (is_part && entry.text_offset == 5) ++at_smile;
  }
  EXPECT_GE(at_smile, 2U);
  EXPECT_LE(last, 9) << "places are characters of the text, not of the tokens' texts";
}

TEST_F(OutputCoreTest, ClientsDoNotSeeVirtualTokens) {
  const TokenIds own = *tokenizer()->encode("One day he", false);
  const auto with_tokens = [&](std::int32_t num_virtual) {
    return [&own, num_virtual](RequestSpec& s) {
      TokenIds all(static_cast<std::size_t>(num_virtual), 0);
      all.insert(all.end(), own.begin(), own.end());
      s.prompt = std::make_shared<const TokenIds>(std::move(all));
      s.adapter = {.id = 1, .name = "tone", .path = {}, .facts = {.num_virtual_tokens = num_virtual}};
      s.sampling.prompt_logprobs = 0;
    };
  };
  const auto result_of = [&](RequestId id, std::int32_t num_virtual, std::int64_t num_cached) {
    open(id, with_tokens(num_virtual));
    StepOutputs known;
    known.finished_us = 3000;
    known.started = {{id, 2000, num_cached}};
    known.prompt_logprobs = {{id, {}}};
    for (std::size_t i = 1; i < own.size(); ++i) {
      known.prompt_logprobs[0].tokens.push_back(TokenReport{own[i], -0.5F, 1, {}});
    }
    known.ends = {{id, std::nullopt}};
    return *core_.process(known, 5000).outputs.at(0).done;
  };
  const RequestResult plain = result_of(1, 0, 2);
  const RequestResult adapted = result_of(2, 4, 6);
  EXPECT_EQ(adapted.usage.prompt_tokens, std::ssize(own));
  EXPECT_EQ(adapted.usage.cached_tokens, 2);
  EXPECT_EQ(adapted.timing.cache_miss, plain.timing.cache_miss);
  ASSERT_EQ(adapted.prompt_logprobs->size(), plain.prompt_logprobs->size());
  for (std::size_t i = 0; i < plain.prompt_logprobs->size(); ++i) {
    EXPECT_EQ((*adapted.prompt_logprobs)[i].text_offset, (*plain.prompt_logprobs)[i].text_offset);
  }
  EXPECT_EQ(result_of(3, 4, 3).usage.cached_tokens, 0) << "a part of the virtual tokens was cached";
}

TEST_F(OutputCoreTest, AStopStringCountsInTheAnswerAlone) {
  open(1, [](RequestSpec& s) {
    s.sampling.stop = {"fox"};
    s.sampling.answer_marks = AnswerMarks{.thinking_begin = "<think>", .thinking_end = "</think>"};
  });
  const auto outputs = feed(1, "<think> a fox</think> was a fox and");
  ASSERT_TRUE(outputs.back().done);
  EXPECT_EQ(outputs.back().done->outputs.at(0).text, "<think> a fox</think> was a ");
  EXPECT_EQ(text_of(outputs), outputs.back().done->outputs.at(0).text);
  EXPECT_EQ(stop_hits_.size(), 1U);
}

TEST_F(OutputCoreTest, AStopStringThatOnlyTheEndDecidesCountsWhereTheSequenceIsCut) {
  const auto ends_with = [&](RequestId id, FinishReason reason) {
    open(id, [](RequestSpec& s) {
      s.sampling.stop = {"\n"};
      s.sampling.answer_marks = AnswerMarks{.thinking_begin = "<think>", .thinking_end = "</think>"};
    });
    SequenceOutput last = token(id, tokenizer()->encode("\n", false)->at(0));
    last.finished = reason;
    return step({last}).outputs.at(0).done->outputs.at(0);
  };
  const SequenceResult cut = ends_with(1, FinishReason::length);
  EXPECT_EQ(cut.text, "");
  EXPECT_EQ(std::get<std::string>(cut.stop_reason), "\n");
}

TEST_F(OutputCoreTest, CachedTokensAreAtMostThoseOfThePrompt) {
  const auto spec = open(1);
  const auto num_prompt_tokens = std::ssize(*spec->prompt);
  StepOutputs started;
  started.started = {{1, 2000, num_prompt_tokens + 5}};  // the request continues, and others have sampled its output
  core_.process(started, 2500);
  SequenceOutput last = token(1, 60);
  last.finished = FinishReason::length;
  const auto effects = step({last});
  const RequestResult& result = *effects.outputs.at(0).done;
  EXPECT_EQ(result.usage.cached_tokens, num_prompt_tokens);
  EXPECT_EQ(result.timing.cache_miss, 0);
}

TEST_F(OutputCoreTest, TimesCountFromArrival) {
  open(1, [](RequestSpec& s) { s.prompt = std::make_shared<const TokenIds>(TokenIds(10, 5)); });
  StepOutputs started;
  started.started = {{1, 2000, 7}};
  core_.process(started, 2500);
  SequenceOutput last = token(1, 60);
  last.finished = FinishReason::length;
  const auto effects = step({last});
  const RequestResult& result = *effects.outputs.at(0).done;
  EXPECT_DOUBLE_EQ(result.timing.queue_ms, 1.0);
  EXPECT_DOUBLE_EQ(result.timing.ttft_ms, 2.0);
  EXPECT_DOUBLE_EQ(result.timing.total_ms, 4.0);
  EXPECT_EQ(result.usage.cached_tokens, 7);
}

TEST_F(OutputCoreTest, TheEndTellsWhatHeldARequestUp) {
  open(1, [](RequestSpec& s) { s.prompt = std::make_shared<const TokenIds>(TokenIds(10, 5)); });
  open(2, [](RequestSpec& s) { s.prompt = std::make_shared<const TokenIds>(TokenIds(10, 5)); });
  StepOutputs news;
  news.started = {{1, 2000, 7}};
  news.interrupted = {
      {1, Interruption::preempted}, {1, Interruption::restarted}, {1, Interruption::preempted}, {9, {}}};
  news.drafts = {{1, 4, 1}, {9, 5, 5}, {1, 3, 3}};
  core_.process(news, 2500);
  const auto effects = step({}, {RequestEnd{1, std::nullopt}, RequestEnd{2, std::nullopt}});
  ASSERT_EQ(effects.outputs.size(), 2U);
  const Timing& timing = effects.outputs[0].done->timing;
  EXPECT_EQ(timing.cache_miss, 3);
  EXPECT_EQ(timing.preemptions, 2);
  EXPECT_EQ(timing.restarts, 1);
  EXPECT_EQ(timing.draft_tokens, 7);
  EXPECT_EQ(timing.drafts_accepted, 4);
  EXPECT_EQ(effects.outputs[1].done->timing.cache_miss, 0) << "nothing was looked for: it has never run";
  EXPECT_EQ(effects.outputs[1].done->timing.draft_tokens, 0);
}

TEST_F(OutputCoreTest, DraftsOfTheLastStepCountAndARequestThatContinuesCountsOn) {
  open(1);
  StepOutputs first;
  first.drafts = {{1, 4, 2}};
  first.outputs = {token(1, 20)};
  core_.process(first, 2500);
  const auto continued = core_.with_progress_of(std::vector<RequestId>{1});
  ASSERT_EQ(continued.size(), 1U);
  EXPECT_EQ(continued[0]->progress->draft_tokens, 4);
  EXPECT_EQ(continued[0]->progress->drafts_accepted, 2);

  std::vector<std::byte> bytes;
  Encoder out(bytes);
  core_.save(out);
  Decoder in(bytes);
  OutputCore loaded(tokenizer());
  ASSERT_TRUE(loaded.load(in));
  OutputCore elsewhere(tokenizer());
  ASSERT_TRUE(elsewhere.open(continued[0]));
  StepOutputs last;
  last.drafts = {{1, 3, 1}};
  last.outputs = {token(1, 30)};
  last.outputs.front().finished = FinishReason::length;
  for (OutputCore* core : {&core_, &loaded, &elsewhere}) {
    const auto effects = core->process(last, 3000);
    const Timing& timing = effects.outputs.at(0).done->timing;
    EXPECT_EQ(timing.draft_tokens, 7);
    EXPECT_EQ(timing.drafts_accepted, 3);
  }
}

TEST_F(OutputCoreTest, ProgressWithAnImpossibleNumberOfDraftsIsRefused) {
  open(1);
  const auto spec = core_.with_progress_of(std::vector<RequestId>{1}).at(0);
  EXPECT_TRUE(is_valid(spec));
  for (auto count : {&RequestProgress::draft_tokens, &RequestProgress::drafts_accepted}) {
    auto progress = *spec->progress;
    progress.*count = -1;
    EXPECT_FALSE(is_valid(with_progress(*spec, std::make_shared<const RequestProgress>(progress))));
  }
}

TEST_F(OutputCoreTest, TellsWhatItKnowsOfOpenRequestsAndOfThoseThatEndedLast) {
  open(1);
  open(2);
  open(3);
  StepOutputs began;
  began.finished_us = 2500;
  began.started = {{1, 1500, 0}, {2, 1600, 1}};
  began.interrupted = {{2, Interruption::preempted}, {2, Interruption::restarted}};
  began.drafts = {{2, 4, 3}};
  began.outputs = {token(1, 20)};
  core_.process(began, 2600);
  const std::vector<RequestId> asked{2, 1, 99};
  auto facts = core_.facts(asked);
  ASSERT_EQ(facts.open.size(), 2U) << "99 was never there, 3 was not asked for";
  EXPECT_EQ(facts.open[0].id, 2U);
  EXPECT_EQ(facts.open[0].cached_tokens, 1);
  EXPECT_EQ(facts.open[0].preemptions, 1);
  EXPECT_EQ(facts.open[0].restarts, 1);
  EXPECT_EQ(facts.open[0].draft_tokens, 4);
  EXPECT_EQ(facts.open[0].drafts_accepted, 3);
  EXPECT_EQ(facts.open[0].first_token_us, -1);
  EXPECT_EQ(facts.open[1].first_token_us, 2500);
  EXPECT_TRUE(facts.ended.empty());

  step({}, {{1, std::nullopt}, {2, Error{ErrorCode::internal, "broken", {}, -1}}});
  auto last = token(3, 20);
  last.finished = FinishReason::length;
  step({last});
  facts = core_.facts(asked);
  EXPECT_TRUE(facts.open.empty());
  ASSERT_EQ(facts.ended.size(), 3U);
  std::ranges::sort(facts.ended, {}, &view::EndedRequest::id);
  EXPECT_EQ(facts.ended[0].finish_reason, FinishReason::abort);
  EXPECT_EQ(facts.ended[0].completion_tokens, 1);
  EXPECT_EQ(facts.ended[0].first_scheduled_us, 1500);
  EXPECT_FALSE(facts.ended[1].finish_reason) << "an error";
  EXPECT_EQ(facts.ended[1].preemptions, 1);
  EXPECT_EQ(facts.ended[1].draft_tokens, 4);
  EXPECT_EQ(facts.ended[1].drafts_accepted, 3);
  EXPECT_EQ(facts.ended[2].finish_reason, FinishReason::length);
  EXPECT_EQ(facts.ended[2].arrival_us, 1000);
  EXPECT_EQ(facts.ended[2].first_token_us, 3000);
  EXPECT_EQ(facts.ended[2].ended_us, 5000);
}

TEST_F(OutputCoreTest, RemembersTheLastEndsOnly) {
  for (RequestId id = 1; id <= view::kMaxEnded + 3; ++id) {
    open(id);
    step({}, {{id, std::nullopt}});
  }
  const auto ended = core_.facts({}).ended;
  ASSERT_EQ(ended.size(), view::kMaxEnded);
  EXPECT_EQ(ended.front().id, 4U);
  EXPECT_EQ(ended.back().id, view::kMaxEnded + 3);
}

}  // namespace
}  // namespace pagoda::output
