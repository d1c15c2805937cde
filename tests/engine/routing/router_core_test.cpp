#include "engine/routing/router_core.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace pagoda::routing {
namespace {

using Effects = RouterCore::Effects;

constexpr ClientId kAlice = 1;
constexpr ClientId kBob = 2;
constexpr TimeUs kNow = 5'000'000;

AdmissionLimits limits() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 5;
  limits.max_queued_prompt_tokens = 1 << 30;
  limits.seed = 7;
  return limits;
}

std::shared_ptr<GenerateRequest> text_request(std::string text = "hello") {
  auto request = std::make_shared<GenerateRequest>();
  request->prompt = std::move(text);
  return request;
}

/// A text so long that the tokenizer gets no other meanwhile.
std::shared_ptr<GenerateRequest> long_text() {
  return text_request(std::string(TokenizerQueue::kBytesAtTokenizer, 'a'));
}

std::shared_ptr<GenerateRequest> ids_request() {
  auto request = std::make_shared<GenerateRequest>();
  request->prompt_token_ids = {1, 2, 3};
  return request;
}

TokenIds tokens(std::size_t count) {
  return TokenIds(count, 5);
}

/// A core with the calls that tests often make.
struct Router {
  explicit Router(const AdmissionLimits& its_limits = limits()) : core(its_limits, 0) {}

  ErrorCode refusal(ClientId client, std::uint64_t tag) {
    return core.submit(client, tag, *ids_request(), kNow).error().code;
  }
  RouterCore::Submitted submit(ClientId client, std::uint64_t tag, const std::shared_ptr<GenerateRequest>& request) {
    const auto submitted = core.submit(client, tag, *request, kNow);
    EXPECT_TRUE(submitted) << submitted.error().message;
    return *submitted;
  }
  RequestId in_engine(ClientId client, std::uint64_t tag) {
    const RequestId id = submit(client, tag, ids_request()).id;
    EXPECT_TRUE(std::holds_alternative<SharedSpec>(core.prompt_encoded(id, tokens(3)).settled.at(0).outcome));
    return id;
  }
  RequestId at_tokenizer(ClientId client, std::uint64_t tag) {
    const auto submitted = submit(client, tag, long_text());
    EXPECT_EQ(core.next_job(), submitted.job);
    return submitted.id;
  }
  RouterCore::Submitted waiting(ClientId client, std::uint64_t tag) {
    const auto submitted = submit(client, tag, text_request());
    EXPECT_EQ(core.next_job(), std::nullopt);
    return submitted;
  }

  RouterCore core;
};

/// Returns the requests that ended outside the engine with their terminal output, sorted.
std::vector<RequestId> aborted_outside(const Effects& effects) {
  std::vector<RequestId> ids;
  for (const auto& settled : effects.settled) {
    const auto* output = std::get_if<RequestOutput>(&settled.outcome);
    if (output == nullptr) continue;
    EXPECT_EQ(output->request_id, settled.id);
    EXPECT_TRUE(output->done && output->done->outputs.at(0).finish_reason == FinishReason::abort);
    ids.push_back(settled.id);
  }
  std::ranges::sort(ids);
  return ids;
}

/// Returns the requests that were refused with `code`.
std::vector<RequestId> refused(const Effects& effects, ErrorCode code) {
  std::vector<RequestId> ids;
  for (const auto& settled : effects.settled) {
    const auto* error = std::get_if<Error>(&settled.outcome);
    if (error != nullptr && error->code == code) ids.push_back(settled.id);
  }
  std::ranges::sort(ids);
  return ids;
}

bool nothing(const Effects& effects) {
  return effects.settled.empty() && effects.aborted.empty() && effects.taken_back.empty() && !effects.drained;
}

TEST(RouterCore, ATextEntersTheEngineWithItsTagWhenItIsTokenized) {
  Router router;
  const auto submitted = router.submit(kAlice, 9, text_request());
  ASSERT_TRUE(submitted.job);
  EXPECT_EQ(router.core.next_job(), submitted.job);
  router.core.job_finished(*submitted.job);
  const Effects effects = router.core.prompt_encoded(submitted.id, tokens(4));
  ASSERT_EQ(effects.settled.size(), 1U);
  const auto& spec = std::get<SharedSpec>(effects.settled[0].outcome);
  EXPECT_EQ(spec->id, submitted.id);
  EXPECT_EQ(spec->tag, 9U);
  EXPECT_EQ(spec->arrival_us, kNow);
  EXPECT_EQ(router.core.replica_of(submitted.id), 0);
}

TEST(RouterCore, IdsNeedNoTokenizer) {
  Router router;
  EXPECT_FALSE(router.submit(kAlice, 1, ids_request()).job);
  EXPECT_EQ(router.core.next_job(), std::nullopt);
}

TEST(RouterCore, APromptThatIsRefusedAfterAllIsForgotten) {
  Router router;
  const auto submitted = router.submit(kAlice, 1, text_request());
  const Effects effects = router.core.prompt_encoded(submitted.id, tokens(24));
  EXPECT_EQ(refused(effects, ErrorCode::context_too_long), std::vector{submitted.id});
  EXPECT_EQ(router.core.num_live(), 0U);
  router.submit(kAlice, 1, text_request());
}

TEST(RouterCore, ATagIsRefusedWhileItsRequestLivesWhereverThatIs) {
  Router router;
  const RequestId inside = router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kAlice, 2);
  router.waiting(kAlice, 3);
  for (const std::uint64_t tag : {1U, 2U, 3U}) EXPECT_EQ(router.refusal(kAlice, tag), ErrorCode::duplicate_id);
  router.in_engine(kBob, 1);  // equal tags of different clients are different requests
  router.core.closed(inside, {}, 1000);
  router.core.abort(encoding, kNow);
  EXPECT_FALSE(router.core.live_request(kAlice, 1));
  router.in_engine(kAlice, 1);
  router.in_engine(kAlice, 2);
}

TEST(RouterCore, ARequestOutsideEndsAtOnceWhenItIsAborted) {
  Router router;
  const RequestId encoding = router.at_tokenizer(kAlice, 1);
  const auto waiting = router.waiting(kAlice, 2);
  EXPECT_EQ(aborted_outside(router.core.abort(encoding, kNow)), std::vector{encoding});
  const Effects effects = router.core.abort(waiting.id, kNow);
  EXPECT_EQ(aborted_outside(effects), std::vector{waiting.id});
  EXPECT_EQ(effects.taken_back, std::vector{*waiting.job});
  EXPECT_EQ(router.core.num_live(), 0U);
  EXPECT_TRUE(nothing(router.core.prompt_encoded(encoding, tokens(3)))) << "its text comes too late";
}

TEST(RouterCore, ARequestInTheEngineLivesUntilTheEngineHasEndedIt) {
  Router router;
  const RequestId id = router.in_engine(kAlice, 1);
  const Effects effects = router.core.abort(id, kNow);
  EXPECT_EQ(effects.aborted, std::vector{id});
  EXPECT_TRUE(effects.settled.empty());
  EXPECT_EQ(router.core.live_request(kAlice, 1), id);
  EXPECT_TRUE(nothing(router.core.closed(id, {}, 1000)));
  EXPECT_FALSE(router.core.live_request(kAlice, 1));
  EXPECT_TRUE(nothing(router.core.closed(id, {}, 1000))) << "a second time changes nothing";
}

TEST(RouterCore, WhenAClientGoesItsRequestsEndInEveryStateAndItsQuestionsAreNotAsked) {
  Router router;
  const RequestId inside = router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kAlice, 2);
  const auto waiting = router.waiting(kAlice, 3);
  const auto question = router.core.ask(kAlice, 10);
  const auto others = router.waiting(kBob, 1);
  ASSERT_TRUE(question);

  const Effects effects = router.core.client_gone(kAlice, kNow);
  EXPECT_EQ(effects.aborted, std::vector{inside});
  EXPECT_EQ(aborted_outside(effects), (std::vector{encoding, waiting.id}));
  EXPECT_EQ(std::ranges::count(effects.taken_back, *waiting.job), 1);
  EXPECT_EQ(std::ranges::count(effects.taken_back, *question), 1);
  EXPECT_EQ(std::ranges::count(effects.taken_back, *others.job), 0);

  router.core.closed(inside, {}, 1000);
  EXPECT_EQ(router.core.num_live(), 1U);
  EXPECT_TRUE(router.core.live_request(kBob, 1));
  EXPECT_TRUE(nothing(router.core.client_gone(kAlice, kNow)));
}

TEST(RouterCore, ADrainOfAnIdleEngineIsOverAtOnceEachTime) {
  Router router;
  EXPECT_TRUE(router.core.drain().drained);
  EXPECT_TRUE(router.core.drain().drained);
  EXPECT_EQ(router.core.drained(), 0);
  EXPECT_EQ(router.refusal(kAlice, 1), ErrorCode::shutting_down);
}

TEST(RouterCore, ADrainIsOverOnceWithTheLastRequest) {
  Router router;
  const RequestId inside = router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kAlice, 2);
  EXPECT_FALSE(router.core.drain().drained);
  EXPECT_EQ(router.refusal(kBob, 1), ErrorCode::shutting_down);
  EXPECT_FALSE(router.core.prompt_encoded(encoding, tokens(3)).drained) << "what is live goes on";
  EXPECT_FALSE(router.core.closed(inside, {}, 1000).drained);
  EXPECT_TRUE(router.core.closed(encoding, {}, 1000).drained);
  EXPECT_FALSE(router.core.closed(encoding, {}, 1000).drained);
  EXPECT_EQ(router.core.drained(), 0);
}

TEST(RouterCore, ADrainIsOverWhenTheLastPromptIsRefused) {
  Router router;
  const RequestId encoding = router.at_tokenizer(kAlice, 1);
  router.core.drain();
  const Effects effects = router.core.prompt_encoded(encoding, fail(ErrorCode::invalid_request, "not UTF-8"));
  EXPECT_EQ(refused(effects, ErrorCode::invalid_request), std::vector{encoding});
  EXPECT_TRUE(effects.drained);
}

TEST(RouterCore, ADrainWhoseTimeIsOverAbortsAndCountsWhatIsLive) {
  Router router;
  const RequestId inside = router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kBob, 1);
  router.core.drain();
  const Effects effects = router.core.abort_all(kNow);
  EXPECT_EQ(effects.aborted, std::vector{inside});
  EXPECT_EQ(aborted_outside(effects), std::vector{encoding});
  EXPECT_FALSE(effects.drained);
  EXPECT_TRUE(router.core.closed(inside, {}, 1000).drained);
  EXPECT_EQ(router.core.drained(), 2);
}

TEST(RouterCore, ADrainWhoseTimeIsOverEndsWithTheRequestsOutside) {
  Router router;
  router.at_tokenizer(kAlice, 1);
  router.waiting(kBob, 1);
  router.core.drain();
  const Effects effects = router.core.abort_all(kNow);
  EXPECT_EQ(effects.settled.size(), 2U);
  EXPECT_TRUE(effects.drained);
}

TEST(RouterCore, WhenTheEngineFailsTextsThatWaitAreRefusedWithItsReason) {
  Router router;
  const RequestId inside = router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kAlice, 2);
  const auto waiting = router.waiting(kBob, 1);
  ASSERT_TRUE(router.core.ask(kBob, 10));
  router.core.drain();

  const Effects effects = router.core.engine_failed({ErrorCode::device_failed, "no device"});
  EXPECT_EQ(refused(effects, ErrorCode::device_failed), (std::vector{encoding, waiting.id}));
  EXPECT_EQ(std::ranges::count(effects.taken_back, *waiting.job), 1);
  EXPECT_TRUE(effects.aborted.empty()) << "the output processor ends those in the engine";
  EXPECT_FALSE(effects.drained);
  EXPECT_EQ(router.core.next_job(), std::nullopt) << "nobody answers any more";
  EXPECT_TRUE(nothing(router.core.prompt_encoded(encoding, tokens(3))));

  EXPECT_TRUE(router.core.closed(inside, {}, 1000).drained);
  EXPECT_EQ(router.core.drained().error().message, "no device");
}

TEST(RouterCore, AFailedEngineRefusesEverythingWithItsReasonAlsoWhenItDrains) {
  Router router;
  EXPECT_EQ(router.core.no_answer().code, ErrorCode::internal);
  router.core.drain();
  router.core.engine_failed({ErrorCode::device_failed, "no device"});
  router.core.drain();
  EXPECT_EQ(router.refusal(kAlice, 1), ErrorCode::device_failed);
  EXPECT_EQ(router.core.ask(kAlice, 10).error().message, "no device");
  EXPECT_EQ(router.core.no_answer().message, "no device");
}

TEST(RouterCore, SaysQueueFullWithATimeToTryAgainAndTakesMoreWhenOneEnds) {
  Router router;
  const RequestId first = router.in_engine(kAlice, 0);
  for (std::uint64_t tag = 1; tag < 5; ++tag) router.submit(kAlice, tag, text_request());
  const auto sixth = router.core.submit(kBob, 1, *text_request(), kNow);
  ASSERT_FALSE(sixth);
  EXPECT_EQ(sixth.error().code, ErrorCode::queue_full);
  EXPECT_GT(sixth.error().retry_after_ms, 0);
  EXPECT_TRUE(router.core.with_own({}, kNow).overloaded);
  router.core.closed(first, {}, 1000);
  EXPECT_FALSE(router.core.with_own({}, kNow).overloaded);
  router.submit(kBob, 1, text_request());
}

TEST(RouterCore, IsFullWithManySequencesOfFewRequests) {
  Router router;  // has room for 5 requests
  const auto many = text_request();
  many->sampling.n = 16'000;
  router.submit(kAlice, 1, many);
  EXPECT_EQ(router.refusal(kBob, 1), ErrorCode::queue_full);
  router.core.client_gone(kAlice, kNow);
  router.submit(kBob, 1, text_request());
}

AdmissionLimits limits_of_20_tokens() {
  AdmissionLimits few = limits();
  few.max_queued_prompt_tokens = 20;
  return few;
}

TEST(RouterCore, CountsTextsInTheQueuedPromptTokensBeforeTheyAreTokenized) {
  Router router(limits_of_20_tokens());
  const auto text = text_request(std::string(40, 'a'));  // about 11 tokens
  const RequestId first = router.submit(kAlice, 1, text).id;
  router.submit(kBob, 1, text);
  EXPECT_EQ(router.core.submit(kBob, 2, *text, kNow).error().code, ErrorCode::queue_full);
  EXPECT_EQ(router.refusal(kAlice, 2), ErrorCode::queue_full);
  EXPECT_TRUE(router.core.with_own({}, kNow).overloaded);
  router.core.prompt_encoded(first, tokens(2));  // fewer tokens than estimated from its bytes
  EXPECT_FALSE(router.core.with_own({}, kNow).overloaded);
  router.submit(kBob, 2, text);
}

TEST(RouterCore, CountsQueuedPromptTokens) {
  Router router(limits_of_20_tokens());
  const RequestId id = router.submit(kAlice, 1, text_request()).id;
  router.core.prompt_encoded(id, tokens(20));
  EXPECT_EQ(router.refusal(kAlice, 2), ErrorCode::queue_full);
  EXPECT_TRUE(router.core.with_own({}, kNow).overloaded);
  router.core.closed(id, {}, 1000);
  router.submit(kAlice, 2, text_request());
}

TEST(RouterCore, ATextThatTheTokenizersQueueRefusesLeavesNothingBehind) {
  AdmissionLimits few = limits();
  few.max_queued_prompt_bytes = 4 * TokenizerQueue::kBytesAtTokenizer;
  Router router(few);
  router.at_tokenizer(kAlice, 1);
  EXPECT_EQ(router.core.submit(kAlice, 2, *long_text(), kNow).error().code, ErrorCode::queue_full);
  EXPECT_EQ(router.core.num_live(), 1U);
  EXPECT_FALSE(router.core.live_request(kAlice, 2));
}

TEST(RouterCore, AddsToTheEnginesCountersWhatOnlyItKnows) {
  Router router;
  router.in_engine(kAlice, 1);
  const RequestId encoding = router.at_tokenizer(kAlice, 2);
  router.waiting(kAlice, 3);
  router.core.abort(encoding, kNow);
  EngineStats engine;
  engine.requests_waiting = 10;
  engine.requests_aborted_total = 20;
  const EngineStats stats = router.core.with_own(engine, kNow);
  EXPECT_EQ(stats.requests_waiting, 11);
  EXPECT_EQ(stats.requests_aborted_total, 21);
  EXPECT_EQ(stats.uptime_s, 5.0);
  EXPECT_EQ(stats.health, "ok");

  router.core.engine_failed({ErrorCode::device_failed, "no device"});
  const EngineStats failed = router.core.with_own(engine, kNow);
  EXPECT_EQ(failed.requests_waiting, 0);
  EXPECT_EQ(failed.uptime_s, 5.0);
  EXPECT_EQ(failed.health, "no device");
}

/// Gives the request a constraint: its own, or `regex`.
std::shared_ptr<GenerateRequest> with_grammar(std::shared_ptr<GenerateRequest> request, const char* regex = nullptr) {
  static int next = 0;
  const std::string text = regex != nullptr ? regex : "a" + std::to_string(++next);
  request->sampling.structured_outputs = {GrammarKind::regex, text, {}};
  return request;
}

/// Returns a pointer in place of a compiled grammar. These tests do not look into it.
grammar::SharedGrammar some_grammar() {
  return {std::make_shared<int>(), reinterpret_cast<const grammar::CompiledGrammar*>(1)};
}

TEST(RouterCoreGrammars, ARequestEntersWhenItsTextIsEncodedAndItsGrammarCompiled) {
  for (const bool grammar_first : {false, true}) {
    Router router;
    const auto submitted = router.submit(kAlice, 1, with_grammar(text_request()));
    EXPECT_EQ(router.core.next_job(), submitted.job);
    EXPECT_EQ(router.core.next_grammar(), submitted.grammar_job);
    const auto grammar = some_grammar();
    const auto encode = [&] { return router.core.prompt_encoded(submitted.id, tokens(3)); };
    const auto compile = [&] { return router.core.grammar_compiled(*submitted.grammar_job, grammar); };
    EXPECT_TRUE((grammar_first ? compile() : encode()).empty());
    const auto effects = grammar_first ? encode() : compile();
    ASSERT_EQ(effects.settled.size(), 1U);
    const auto spec = std::get<SharedSpec>(effects.settled[0].outcome);
    EXPECT_EQ(spec->grammar, grammar);
    EXPECT_EQ(spec->prompt->size(), 3U);
  }
}

TEST(RouterCoreGrammars, AKnownGrammarTakesNoTurn) {
  Router router;
  const auto submitted = router.core.submit(kAlice, 1, *with_grammar(ids_request()), kNow, some_grammar());
  ASSERT_TRUE(submitted);
  EXPECT_EQ(submitted->grammar_job, std::nullopt);
  const auto effects = router.core.prompt_encoded(submitted->id, tokens(3));
  EXPECT_NE(std::get<SharedSpec>(effects.settled.at(0).outcome)->grammar, nullptr);
}

TEST(RouterCoreGrammars, ARefusedOneEndsItsRequest) {
  Router router;
  const auto submitted = router.submit(kAlice, 1, with_grammar(text_request()));
  EXPECT_EQ(router.core.next_grammar(), submitted.grammar_job);
  const Error error{ErrorCode::invalid_request, "no", "structured_outputs", -1};
  const auto effects = router.core.grammar_compiled(*submitted.grammar_job, fail(error));
  EXPECT_EQ(refused(effects, ErrorCode::invalid_request), std::vector{submitted.id});
  EXPECT_EQ(effects.taken_back, std::vector{*submitted.job});
  EXPECT_EQ(router.core.num_live(), 0U);
  EXPECT_TRUE(router.core.prompt_encoded(submitted.id, tokens(3)).empty());
}

TEST(RouterCoreGrammars, WhoWatchesIsToldWhoWaitsForOne) {
  Router router;
  router.submit(kAlice, 1, ids_request());
  auto request = with_grammar(ids_request());
  request->sampling.n = 3;
  const auto submitted = router.submit(kAlice, 2, request);
  const auto waiting = router.core.waiting_for_grammar();
  ASSERT_EQ(waiting.size(), 1U);
  EXPECT_EQ(waiting[0].id, submitted.id);
  EXPECT_EQ(waiting[0].state, view::RequestState::waiting_for_grammar);
  EXPECT_EQ(waiting[0].num_sequences, 3);
  EXPECT_EQ(waiting[0].arrival_us, kNow);
  EXPECT_EQ(waiting[0].first_scheduled_us, -1);
  router.core.grammar_compiled(*submitted.grammar_job, some_grammar());
  EXPECT_TRUE(router.core.waiting_for_grammar().empty());
}

TEST(RouterCoreGrammars, ARefusedPromptTakesItsGrammarBack) {
  Router router;
  const auto first = router.submit(kAlice, 1, with_grammar(ids_request()));
  EXPECT_EQ(router.core.next_grammar(), first.grammar_job);
  const auto second = router.submit(kAlice, 2, with_grammar(text_request()));
  const auto effects = router.core.prompt_encoded(second.id, fail(ErrorCode::invalid_request, "no"));
  EXPECT_EQ(effects.grammars_taken_back, std::vector{*second.grammar_job});
  EXPECT_EQ(refused(effects, ErrorCode::invalid_request), std::vector{second.id});
}

TEST(RouterCoreGrammars, OneIsCompiledAtATimeAndTheOthersWait) {
  Router router;
  const auto first = router.submit(kAlice, 1, with_grammar(ids_request()));
  const auto second = router.submit(kBob, 1, with_grammar(ids_request()));
  EXPECT_EQ(router.core.next_grammar(), first.grammar_job);
  EXPECT_EQ(router.core.next_grammar(), std::nullopt);
  const RequestId other = router.in_engine(kBob, 2);  // a request without a grammar does not wait
  EXPECT_GT(other, second.id);
  router.core.grammar_finished(*first.grammar_job);
  EXPECT_EQ(router.core.next_grammar(), second.grammar_job);
}

TEST(RouterCoreGrammars, AnAbortedRequestAsksForNoneAndDropsWhatComes) {
  Router router;
  const auto first = router.submit(kAlice, 1, with_grammar(ids_request()));
  const auto second = router.submit(kAlice, 2, with_grammar(ids_request()));
  EXPECT_EQ(router.core.next_grammar(), first.grammar_job);
  EXPECT_EQ(aborted_outside(router.core.abort(first.id, kNow)), std::vector{first.id});
  EXPECT_TRUE(router.core.grammar_compiled(*first.grammar_job, some_grammar()).empty());
  const auto gone = router.core.client_gone(kAlice, kNow);
  EXPECT_EQ(gone.grammars_taken_back, std::vector{*second.grammar_job});
  router.core.grammar_finished(*first.grammar_job);
  EXPECT_EQ(router.core.next_grammar(), std::nullopt);
}

TEST(RouterCoreGrammars, TooManyThatWaitAreRefused) {
  auto wide = limits();
  wide.max_queued_requests = 10'000;
  Router router(wide);
  std::uint64_t tag = 0;
  while (router.core.submit(kAlice, ++tag, *with_grammar(ids_request()), kNow)) {
  }
  const auto refused = router.core.submit(kAlice, ++tag, *with_grammar(ids_request()), kNow);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
  EXPECT_LT(tag, 100U);
  EXPECT_TRUE(router.core.submit(kAlice, ++tag, *ids_request(), kNow));
  EXPECT_TRUE(router.core.submit(kBob, 1, *with_grammar(ids_request()), kNow));
}

TEST(RouterCoreGrammars, AStateKeepsWhatWaits) {
  Router router;
  const auto first = router.submit(kAlice, 1, with_grammar(ids_request()));
  const auto second = router.submit(kAlice, 2, with_grammar(text_request()));
  EXPECT_EQ(router.core.next_grammar(), first.grammar_job);
  EXPECT_TRUE(router.core.prompt_encoded(first.id, tokens(3)).empty());
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  router.core.save(out);
  Router loaded;
  Decoder in(bytes);
  ASSERT_TRUE(loaded.core.load(in));
  EXPECT_EQ(loaded.core.grammar_compiled(*first.grammar_job, some_grammar()).settled.size(), 1U);
  loaded.core.grammar_finished(*first.grammar_job);
  EXPECT_EQ(loaded.core.next_grammar(), second.grammar_job);
}

TEST(RouterCoreGrammars, RequestsOfAClientShareTheirGrammar) {
  Router router;
  const auto first = router.submit(kAlice, 1, with_grammar(ids_request(), "a+"));
  const auto second = router.submit(kAlice, 2, with_grammar(ids_request(), "a+"));
  const auto third = router.submit(kAlice, 3, with_grammar(text_request(), "a+"));
  EXPECT_TRUE(first.grammar_job);
  EXPECT_EQ(second.grammar_job, std::nullopt);
  EXPECT_TRUE(router.submit(kBob, 1, with_grammar(ids_request(), "a+")).grammar_job) << "of another client";
  EXPECT_TRUE(router.core.prompt_encoded(first.id, tokens(3)).empty());
  EXPECT_TRUE(router.core.prompt_encoded(second.id, tokens(3)).empty());
  EXPECT_TRUE(router.core.abort(first.id, kNow).grammars_taken_back.empty()) << "others wait for it";
  EXPECT_EQ(router.core.next_grammar(), first.grammar_job);
  const auto compiled = router.core.grammar_compiled(*first.grammar_job, some_grammar());
  ASSERT_EQ(compiled.settled.size(), 1U);
  EXPECT_EQ(compiled.settled[0].id, second.id);
  EXPECT_EQ(router.core.prompt_encoded(third.id, tokens(3)).settled.size(), 1U);
}

TEST(RouterCoreGrammars, ManyRequestsWithOneGrammarWaitForOneJob) {
  auto wide = limits();
  wide.max_queued_requests = 10'000;
  Router router(wide);
  for (std::uint64_t tag = 1; tag <= 1'000; ++tag) router.submit(kAlice, tag, with_grammar(ids_request(), "a+"));
  const auto job = router.core.next_grammar();
  ASSERT_TRUE(job);
  const Error error{ErrorCode::invalid_request, "no", "structured_outputs", -1};
  EXPECT_EQ(router.core.grammar_compiled(*job, fail(error)).settled.size(), 1'000U);
  EXPECT_EQ(router.core.num_live(), 0U);
}

TEST(RouterCore, ARequestWhoseTimeIsOverFailsOutsideAndIsTheEnginesToEndInside) {
  Router router;
  auto timed = ids_request();
  timed->timeout_ms = 100;
  const auto inside = router.submit(kAlice, 1, timed).id;
  router.core.prompt_encoded(inside, tokens(3));
  auto timed_text = long_text();
  timed_text->timeout_ms = 200;
  const auto waiting = router.submit(kAlice, 2, timed_text);
  router.submit(kAlice, 3, text_request());  // without a deadline
  EXPECT_EQ(router.core.next_deadline(), kNow + 100'000);
  EXPECT_TRUE(nothing(router.core.expire(kNow + 99'999)));

  const Effects first = router.core.expire(kNow + 100'000);
  ASSERT_EQ(first.expired.size(), 1U);
  EXPECT_EQ(first.expired[0].id, inside);
  EXPECT_EQ(first.expired[0].error.code, ErrorCode::timeout);
  EXPECT_NE(first.expired[0].error.message.find("100 ms"), std::string::npos);
  EXPECT_TRUE(first.settled.empty());
  EXPECT_TRUE(router.core.is_live(inside)) << "until the engine has ended it";
  EXPECT_TRUE(nothing(router.core.expire(kNow + 150'000))) << "it is told once";

  EXPECT_EQ(router.core.next_deadline(), kNow + 200'000);
  const Effects second = router.core.expire(kNow + 1'000'000);
  EXPECT_EQ(refused(second, ErrorCode::timeout), std::vector{waiting.id});
  EXPECT_EQ(second.taken_back, std::vector{*waiting.job});
  EXPECT_FALSE(router.core.is_live(waiting.id));
  EXPECT_EQ(router.core.next_deadline(), std::nullopt);
  router.core.closed(inside, {}, kNow);
  EXPECT_EQ(router.core.num_live(), 1U);
}

TEST(RouterCore, TimeThatARequestHasWaitedBeforeCountsInItsTimeoutAndItsTimings) {
  constexpr TimeUs kWaited = 60'000;
  Router router;
  auto timed = ids_request();
  timed->timeout_ms = 100;
  const auto submitted = router.core.submit(kAlice, 1, *timed, kNow, std::nullopt, kWaited);
  ASSERT_TRUE(submitted);
  EXPECT_EQ(router.core.next_deadline(), kNow + 40'000);
  const auto effects = router.core.prompt_encoded(submitted->id, tokens(3));
  ASSERT_EQ(effects.settled.size(), 1U);
  EXPECT_EQ(std::get<SharedSpec>(effects.settled.front().outcome)->arrival_us, kNow - kWaited);
  const auto late = router.core.submit(kAlice, 2, *timed, kNow, std::nullopt, 2 * kWaited);
  ASSERT_TRUE(late);
  const auto over = router.core.expire(kNow);
  ASSERT_EQ(over.settled.size(), 1U);
  EXPECT_EQ(over.settled.front().id, late->id);
}

TEST(RouterCore, ARequestThatEndsInTimeLeavesNoDeadlineBehind) {
  Router router;
  auto timed = ids_request();
  timed->timeout_ms = 100;
  const auto done = router.submit(kAlice, 1, timed).id;
  router.core.prompt_encoded(done, tokens(3));
  router.core.closed(done, {}, kNow);
  const auto aborted = router.submit(kAlice, 1, timed).id;
  router.core.abort(aborted, kNow);
  EXPECT_EQ(router.core.next_deadline(), std::nullopt);
  EXPECT_TRUE(nothing(router.core.expire(kNow + 1'000'000)));
}

TEST(RouterCore, TheEnginesTimeoutIsThatOfRequestsThatBringNone) {
  auto timed_limits = limits();
  timed_limits.default_timeout_ms = 500;
  Router router(timed_limits);
  router.submit(kAlice, 1, ids_request());
  EXPECT_EQ(router.core.next_deadline(), kNow + 500'000);
  auto own = ids_request();
  own->timeout_ms = 20;
  router.submit(kAlice, 2, own);
  EXPECT_EQ(router.core.next_deadline(), kNow + 20'000);
}

TEST(RouterCore, TimeoutsAndIdsAreChecked) {
  Router router;
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, kMaxTimeoutMs + 1}) {
    auto request = ids_request();
    request->timeout_ms = wrong;
    EXPECT_EQ(router.core.submit(kAlice, 1, *request, kNow).error().param, "timeout_ms") << wrong;
  }
  auto request = ids_request();
  request->request_id = std::string(kMaxRequestIdBytes + 1, 'a');
  EXPECT_EQ(router.core.submit(kAlice, 1, *request, kNow).error().param, "request_id");
}

TEST(RouterCore, ADrainEndsWithTheLastRequestThatRanOutOfTime) {
  Router router;
  auto timed = text_request();
  timed->timeout_ms = 100;
  router.submit(kAlice, 1, timed);
  EXPECT_FALSE(router.core.drain().drained);
  EXPECT_TRUE(router.core.expire(kNow + 100'000).drained);
}

TEST(RouterCore, WhoIsRefusedHearsHowLongTheWorkBeforeItTakes) {
  Router router;
  // Requests run one after the other, a second each: 3 tokens of prompt and 7 of output.
  TimeUs now = kNow;
  for (std::uint64_t tag = 1; tag <= 20; ++tag) {
    const auto id = router.core.submit(kAlice, tag, *ids_request(), now)->id;
    router.core.prompt_encoded(id, tokens(3));
    now += 1'000'000;
    router.core.closed(id, {3, 7}, now);
  }
  for (std::uint64_t tag = 1; tag <= 5; ++tag) {
    const auto id = router.core.submit(kAlice, tag, *ids_request(), now)->id;
    router.core.prompt_encoded(id, tokens(3));
  }
  const Error full = router.core.submit(kAlice, 6, *ids_request(), now).error();
  EXPECT_EQ(full.code, ErrorCode::queue_full);
  EXPECT_EQ(full.retry_after_ms, 5000) << "5 requests of 10 tokens each at 10 tokens/s";
  EXPECT_EQ(full.message, "5 requests with 15 tokens are queued, about 5 s of work at 10 tokens/s");
}

TEST(RouterCore, TextsThatAreNotTokenizedYetCountByTheirBytes) {
  Router router;
  TimeUs now = kNow;
  for (std::uint64_t tag = 1; tag <= 20; ++tag) {
    const auto id = router.core.submit(kAlice, tag, *ids_request(), now)->id;
    router.core.prompt_encoded(id, tokens(3));
    now += 1'000'000;
    router.core.closed(id, {3, 7}, now);
  }
  const auto request = text_request(std::string(400, 'a'));
  std::vector<RequestId> ids;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ids.push_back(router.core.submit(kAlice, tag, *request, now)->id);
  const auto refusal = [&] { return router.core.submit(kAlice, 6, *ids_request(), now).error(); };
  EXPECT_EQ(refusal().retry_after_ms, 54'000) << "5 requests of 101 tokens and 7 of output, at 10 tokens/s";
  EXPECT_EQ(refusal().message, "5 requests with about 505 tokens are queued, about 54 s of work at 10 tokens/s");
  router.core.prompt_encoded(ids.front(), tokens(3));
  EXPECT_TRUE(refusal().message.starts_with("5 requests with about 407 tokens")) << refusal().message;
  router.core.abort(ids.back(), now);
  router.core.submit(kAlice, 7, *ids_request(), now);
  EXPECT_TRUE(refusal().message.starts_with("5 requests with about 309 tokens")) << refusal().message;
}

TEST(RouterCore, BeforeAnythingIsMeasuredTheWaitIsASecond) {
  Router router;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) router.in_engine(kAlice, tag);
  EXPECT_EQ(router.core.submit(kAlice, 6, *ids_request(), kNow).error().retry_after_ms, 1000);
}

TEST(WorkRate, CountsTheTimeInWhichThereIsWorkAlone) {
  WorkRate rate;
  EXPECT_EQ(rate.seconds_for(5, 100), 0);
  rate.begin(0);
  rate.on_ended({50, 50}, 1'000'000);
  rate.begin(3'600'000'000);  // an idle hour
  rate.on_ended({50, 50}, 3'601'000'000);
  EXPECT_NEAR(rate.tokens_per_s(), 100, 2);
  EXPECT_NEAR(rate.seconds_for(2, 100), 2, 0.1);
}

TEST(WorkRate, WhatIsLongAgoCountsNoMore) {
  WorkRate rate;
  rate.begin(0);
  TimeUs now = 0;
  for (int i = 0; i < 100; ++i) rate.on_ended({1000, 0}, now += 1'000'000);
  for (int i = 0; i < 200; ++i) rate.on_ended({10, 0}, now += 1'000'000);
  EXPECT_NEAR(rate.tokens_per_s(), 10, 5);
}

TEST(RouterCore, ListsItsRequestsWithWhatTheEngineKnowsOfThem) {
  Router router;
  auto named = ids_request();
  named->request_id = "mine";
  named->user = "alice";
  const auto running = router.submit(kAlice, 1, named).id;
  router.core.prompt_encoded(running, tokens(3));
  const RequestId added = router.in_engine(kBob, 1);
  const auto preparing = router.submit(kBob, 2, text_request()).id;
  const auto list = router.core.live_requests({{running, RequestState::running, 4}}, kNow + 2'000'000);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].id, running);
  EXPECT_EQ(list[0].request_id, "mine");
  EXPECT_EQ(list[0].user, "alice");
  EXPECT_EQ(list[0].state, RequestState::running);
  EXPECT_EQ(list[0].prompt_tokens, 3);
  EXPECT_EQ(list[0].generated_tokens, 4);
  EXPECT_DOUBLE_EQ(list[0].age_s, 2);
  EXPECT_EQ(list[1].id, added);
  EXPECT_EQ(list[1].state, RequestState::waiting) << "the scheduler does not know it yet";
  EXPECT_EQ(list[2].id, preparing);
  EXPECT_EQ(list[2].state, RequestState::preparing);
}

}  // namespace
}  // namespace pagoda::routing
