// Tests requests that continue from an engine that has ended: they were admitted there.

#include <memory>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

constexpr TimeUs kRestart = 5'000'000;

AdmissionLimits limits_of_two() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 2;
  limits.max_queued_prompt_tokens = 10;
  return limits;
}

GenerateRequest new_request() {
  GenerateRequest request;
  request.prompt_token_ids = {1, 2, 3};
  return request;
}

GenerateRequest recovered_request(bool has_ended) {
  GenerateRequest request = new_request();
  request.resumable = true;
  request.sampling.max_tokens = 10;
  RequestProgress progress;
  auto& sequence = progress.sequences.emplace_back();
  sequence.result.token_ids = {7, 8};
  sequence.result.text_ends = {1, 2};
  sequence.result.text = "ab";
  sequence.ended = has_ended;
  request.progress = std::make_shared<const RequestProgress>(std::move(progress));
  return request;
}

/// Submits a request whose prompt is known, each from a client of its own. Returns the spec that enters the engine;
/// null when it waits for a grammar.
SharedSpec admit(RouterCore& core, const GenerateRequest& request) {
  static ClientId next_client = 100;
  const auto submitted = core.submit(next_client++, 1, request, kRestart);
  EXPECT_TRUE(submitted) << submitted.error().message;
  if (!submitted) return nullptr;
  const auto& ids = *request.prompt_token_ids;
  const auto effects = core.prompt_encoded(submitted->id, TokenIds(ids.begin(), ids.end()));
  if (effects.settled.empty()) return nullptr;
  const auto* spec = std::get_if<SharedSpec>(&effects.settled.front().outcome);
  EXPECT_NE(spec, nullptr);
  return spec == nullptr ? nullptr : *spec;
}

TEST(RecoveredRequests, PassPlacesAndTokensOfTheQueueHoweverManyTheyAre) {
  RouterCore core(limits_of_two(), 0);
  for (int i = 0; i < 40; ++i) EXPECT_NE(admit(core, recovered_request(i % 2 == 0)), nullptr) << i;
  const auto refused = core.submit(1, 1, new_request(), kRestart);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full) << "they count for who comes new";
}

TEST(RecoveredRequests, AStateWithMoreThanTheQueueTakesLoads) {
  RouterCore core(limits_of_two(), 0);
  for (int i = 0; i < 40; ++i) admit(core, recovered_request(false));
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  core.save(out);
  RouterCore loaded(limits_of_two(), 0);
  Decoder in(bytes);
  EXPECT_TRUE(loaded.load(in));
  EXPECT_EQ(loaded.num_live(), 40U);
}

TEST(RecoveredRequests, PassTheTimeToTheFirstTokenThatIsForeseen) {
  AdmissionLimits limits = limits_of_two();
  limits.max_queued_requests = 1000;
  limits.max_queued_prompt_tokens = 1 << 30;
  limits.target_ttft_ms = 1;
  RouterCore core(limits, 0);
  TimeUs now = kRestart;
  // Each request takes a second, so that the next one is refused.
  for (std::uint64_t tag = 1; tag < 30; ++tag) {
    const auto submitted = core.submit(1, tag, new_request(), now);
    if (!submitted) break;
    core.prompt_encoded(submitted->id, TokenIds{1, 2, 3});
    core.closed(submitted->id, {3, 5, 0, 1'000'000}, now += 1'000'000);
  }
  for (std::uint64_t tag = 100; tag < 108; ++tag) core.submit(2, tag, new_request(), now);
  const auto refused = core.submit(3, 1, new_request(), now);
  ASSERT_FALSE(refused) << "the target refuses nothing";
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
  EXPECT_NE(admit(core, recovered_request(false)), nullptr);
}

TEST(RecoveredRequests, ThatHaveEndedNeedNoGrammarAndLiveOnesWaitBeyondTheCompilersQueue) {
  RouterCore core(limits_of_two(), 0);
  GenerateRequest ended = recovered_request(true);
  ended.sampling.structured_outputs.emplace();
  for (int i = 0; i < 300; ++i) EXPECT_NE(admit(core, ended), nullptr) << i;
  EXPECT_EQ(core.next_grammar(), std::nullopt);
  GenerateRequest live = recovered_request(false);
  live.sampling.structured_outputs.emplace();
  for (ClientId client = 1001; client <= 1300; ++client) {
    const auto submitted = core.submit(client, 1, live, kRestart);
    ASSERT_TRUE(submitted) << client << ": " << submitted.error().message;
    ASSERT_TRUE(submitted->grammar_job);
    EXPECT_TRUE(core.prompt_encoded(submitted->id, TokenIds{1, 2, 3}).settled.empty());
    if (client % 100 != 0) continue;
    EXPECT_EQ(core.grammar_compiled(*submitted->grammar_job, grammar::SharedGrammar()).settled.size(), 1U);
  }
}

TEST(RecoveredRequests, AcquireTheirAdaptersAgainUnlessTheyHaveEnded) {
  AdmissionLimits limits = limits_of_two();
  limits.has_adapters = true;
  RouterCore core(limits, 0);
  GenerateRequest live = recovered_request(false);
  live.adapter = "sql";
  const auto submitted = core.submit(1, 1, live, kRestart);
  ASSERT_TRUE(submitted);
  EXPECT_TRUE(submitted->needs_adapter);
  EXPECT_TRUE(core.prompt_encoded(submitted->id, TokenIds{1, 2, 3}).settled.empty());
  const auto entered = core.adapter_acquired(submitted->id, AdapterRef{9, "sql", "/sql"});
  ASSERT_EQ(entered.settled.size(), 1U);
  const auto& spec = std::get<SharedSpec>(entered.settled[0].outcome);
  EXPECT_EQ(spec->adapter.id, 9U);
  EXPECT_EQ(spec->progress, live.progress);
  GenerateRequest ended = recovered_request(true);
  ended.adapter = "sql";
  EXPECT_NE(admit(core, ended), nullptr) << "only its end must still be sent";
}

TEST(RecoveredRequests, WithBadWordsWaitForTheTokenizerBeyondItsQueueAndEndedOnesDoNotWait) {
  AdmissionLimits limits = limits_of_two();
  limits.max_queued_prompt_bytes = 1000;
  RouterCore core(limits, 0);
  GenerateRequest ended = recovered_request(true);
  ended.sampling.bad_words = {"word"};
  GenerateRequest live = recovered_request(false);
  live.sampling.bad_words = {std::string(200, 'a')};
  for (std::uint64_t tag = 1; tag <= 20; ++tag) {
    const auto submitted = core.submit(1, tag, live, kRestart);
    ASSERT_TRUE(submitted) << tag << ": " << submitted.error().message;
    EXPECT_TRUE(submitted->job);
    EXPECT_NE(admit(core, ended), nullptr);
    EXPECT_NE(admit(core, ended), nullptr);
  }
  const auto in_queue = core.submit(1, 21, ended, kRestart);
  ASSERT_TRUE(in_queue);
  EXPECT_FALSE(in_queue->job);
}

TEST(RecoveredRequests, ThatHaveEndedPassTheLimitsThatTheyHadNotBefore) {
  AdmissionLimits limits = limits_of_two();
  GenerateRequest ended = recovered_request(true);
  ended.prompt_token_ids->assign(100, 5);  // the longest prompt that the engine before took
  RouterCore core(limits, 0);
  const auto spec = admit(core, ended);
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec->prompt->size(), 100U);
  EXPECT_TRUE(spec->progress->has_ended());
  GenerateRequest live = recovered_request(false);
  live.prompt_token_ids->assign(100, 5);
  const auto refused = core.submit(1, 1, live, kRestart);
  ASSERT_FALSE(refused) << "what goes on has to fit";
  EXPECT_EQ(refused.error().code, ErrorCode::context_too_long);
}

TEST(RecoveredRequests, MayHaveSequencesThatHadNotBegun) {
  GenerateRequest request = recovered_request(false);
  request.sampling.n = 3;
  auto progress = std::make_shared<RequestProgress>(*request.progress);
  for (std::int32_t index = 1; index < 3; ++index) progress->sequences.emplace_back().result.index = index;
  request.progress = std::move(progress);
  RouterCore core(limits_of_two(), 0);
  const auto spec = admit(core, request);
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec->progress->sequences.size(), 3U);
}

TEST(RecoveredRequests, ADrainLeavesThoseInTheEngineWithAnErrorAndEndsTheOthers) {
  RouterCore core(limits_of_two(), 0);
  const auto plain = admit(core, new_request());
  GenerateRequest resumable = new_request();
  resumable.resumable = true;
  const auto left = admit(core, resumable);
  GenerateRequest waits = recovered_request(false);
  waits.sampling.structured_outputs.emplace();
  const auto outside = core.submit(1, 1, waits, kRestart);
  ASSERT_TRUE(outside);
  core.drain();
  const auto effects = core.abort_all(kRestart, /*leave_resumable=*/true);
  EXPECT_EQ(effects.aborted, std::vector<RequestId>{plain->id});
  ASSERT_EQ(effects.expired.size(), 1U);
  EXPECT_EQ(effects.expired[0].id, left->id);
  EXPECT_EQ(effects.expired[0].error.code, ErrorCode::shutting_down);
  EXPECT_NE(effects.expired[0].error.message.find("continues after the restart"), std::string::npos);
  ASSERT_EQ(effects.settled.size(), 1U);
  const Error& refused = std::get<Error>(effects.settled[0].outcome);
  EXPECT_EQ(refused.code, ErrorCode::shutting_down);
  EXPECT_EQ(refused.message, "the server is shutting down") << "it is not in the journal";
  EXPECT_FALSE(effects.drained);
  core.closed(plain->id, {}, kRestart);
  EXPECT_TRUE(core.closed(left->id, {}, kRestart).drained);
  EXPECT_EQ(core.drained(), 2);
}

TEST(RecoveredRequests, ADrainWithoutAJournalAbortsThemToo) {
  RouterCore core(limits_of_two(), 0);
  GenerateRequest resumable = new_request();
  resumable.resumable = true;
  const auto spec = admit(core, resumable);
  core.drain();
  EXPECT_EQ(core.abort_all(kRestart).aborted, std::vector<RequestId>{spec->id});
  EXPECT_EQ(core.drained(), 1);
}

}  // namespace
}  // namespace pagoda::routing
