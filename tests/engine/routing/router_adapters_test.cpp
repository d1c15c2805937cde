// Requests that name adapters.

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

using Effects = RouterCore::Effects;

constexpr ClientId kClient = 1;
constexpr TimeUs kSubmittedUs = 5'000'000;
const AdapterRef kSql{4, "sql", "/adapters/sql"};
const Error kBroken{ErrorCode::bad_file, "the file is broken"};

AdmissionLimits limits_with_adapters(std::int32_t num_replicas = 1) {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 5;
  limits.max_queued_prompt_tokens = 1 << 30;
  limits.has_adapters = true;
  limits.num_replicas = num_replicas;
  return limits;
}

GenerateRequest sql_request(std::string adapter = "sql") {
  GenerateRequest request;
  request.prompt_token_ids = {1, 2, 3};
  request.adapter = std::move(adapter);
  return request;
}

class RouterAdapters : public testing::Test {
 protected:
  RequestId submit(const GenerateRequest& request) {
    const auto submitted = core_.submit(kClient, next_tag_++, request, kSubmittedUs);
    EXPECT_TRUE(submitted);
    EXPECT_EQ(submitted->needs_adapter, !request.adapter.empty());
    return submitted->id;
  }
  /// Returns a request that waits only for its adapter.
  RequestId waiting() {
    const RequestId id = submit(sql_request());
    EXPECT_TRUE(core_.prompt_encoded(id, TokenIds{1, 2, 3}).empty());
    return id;
  }
  RequestId in_engine() {
    const RequestId id = waiting();
    EXPECT_EQ(core_.adapter_acquired(id, kSql).settled.size(), 1U);
    return id;
  }
  /// Returns a request that has its adapter, but not its prompt.
  RequestId holding() {
    const RequestId id = submit(sql_request());
    EXPECT_TRUE(core_.adapter_acquired(id, kSql).empty());
    return id;
  }
  std::string adapter_in_list() { return core_.live_requests({}, kSubmittedUs).at(0).adapter; }

  RouterCore core_{limits_with_adapters(), 0};
  std::uint64_t next_tag_ = 1;
};

const Error* error_of(const Effects& effects) {
  return effects.settled.size() == 1 ? std::get_if<Error>(&effects.settled[0].outcome) : nullptr;
}

TEST_F(RouterAdapters, ARequestEntersWithItsAdapterWhenItsPromptIsReadyToo) {
  for (const bool adapter_first : {false, true}) {
    const RequestId id = submit(sql_request());
    EXPECT_EQ(adapter_in_list(), "sql");
    const auto encode = [&] { return core_.prompt_encoded(id, TokenIds{1, 2, 3}); };
    const auto acquire = [&] { return core_.adapter_acquired(id, kSql); };
    EXPECT_TRUE((adapter_first ? acquire() : encode()).empty());
    const Effects effects = adapter_first ? encode() : acquire();
    ASSERT_EQ(effects.settled.size(), 1U);
    const auto spec = std::get<SharedSpec>(effects.settled[0].outcome);
    EXPECT_EQ(spec->adapter.id, kSql.id);
    EXPECT_EQ(spec->adapter.name, kSql.name);
    EXPECT_EQ(spec->adapter.path, kSql.path);
    EXPECT_EQ(adapter_in_list(), "sql");
    EXPECT_EQ(core_.closed(id, {}, kSubmittedUs).adapters_released, std::vector{kSql.id});
  }
}

TEST_F(RouterAdapters, ARecoveredRequestGoesOnOnlyWithTheAdapterThatItBeganWith) {
  for (const std::uint64_t fingerprint : {0U, 7U, 8U}) {
    GenerateRequest request = sql_request();
    request.adapter_fingerprint = fingerprint;
    const RequestId id = submit(request);
    EXPECT_TRUE(core_.prompt_encoded(id, TokenIds{1, 2, 3}).empty());
    AdapterRef adapter = kSql;
    adapter.facts.fingerprint = 7;
    const Effects effects = core_.adapter_acquired(id, adapter);
    const Error* const error = error_of(effects);
    ASSERT_EQ(error != nullptr, fingerprint == 8) << fingerprint;
    if (error == nullptr) continue;
    EXPECT_EQ(error->code, ErrorCode::bad_adapter);
    EXPECT_EQ(effects.adapters_released, std::vector{kSql.id});
  }
}

TEST_F(RouterAdapters, ARequestWaitsForItsGrammarToo) {
  GenerateRequest request = sql_request();
  request.sampling.structured_outputs.emplace();
  const auto submitted = core_.submit(kClient, 1, request, kSubmittedUs);
  ASSERT_TRUE(submitted && submitted->grammar_job);
  EXPECT_TRUE(core_.prompt_encoded(submitted->id, TokenIds{1, 2, 3}).empty());
  EXPECT_TRUE(core_.adapter_acquired(submitted->id, kSql).empty());
  const Effects effects = core_.grammar_compiled(*submitted->grammar_job, grammar::SharedGrammar());
  ASSERT_EQ(effects.settled.size(), 1U);
  EXPECT_EQ(std::get<SharedSpec>(effects.settled[0].outcome)->adapter.id, kSql.id);
}

TEST_F(RouterAdapters, ARequestOfTheBaseModelWaitsForNone) {
  const RequestId id = submit(sql_request(""));
  const Effects effects = core_.prompt_encoded(id, TokenIds{1, 2, 3});
  ASSERT_EQ(effects.settled.size(), 1U);
  EXPECT_EQ(std::get<SharedSpec>(effects.settled[0].outcome)->adapter.id, 0U);
  EXPECT_TRUE(core_.closed(id, {}, kSubmittedUs).adapters_released.empty());
}

TEST_F(RouterAdapters, AnErrorOfTheLoadRefusesTheRequest) {
  for (const bool is_encoded : {false, true}) {
    const RequestId id = is_encoded ? waiting() : submit(sql_request());
    const Effects effects = core_.adapter_acquired(id, fail(kBroken));
    ASSERT_NE(error_of(effects), nullptr);
    EXPECT_EQ(error_of(effects)->message, kBroken.message);
    EXPECT_TRUE(effects.adapters_withdrawn.empty() && effects.adapters_released.empty());
    EXPECT_FALSE(core_.is_live(id));
  }
}

TEST_F(RouterAdapters, ARequestThatEndsBeforeTheAnswerTakesItsQuestionBack) {
  GenerateRequest short_lived = sql_request();
  short_lived.timeout_ms = 1;
  const std::vector<std::function<Effects(RequestId)>> ways_to_end{
      [&](RequestId id) { return core_.abort(id, kSubmittedUs); },
      [&](RequestId) { return core_.client_gone(kClient, kSubmittedUs); },
      [&](RequestId) { return core_.expire(kSubmittedUs + 2'000); },
      [&](RequestId id) { return core_.prompt_encoded(id, fail(ErrorCode::invalid_request, "no UTF-8")); },
      [&](RequestId) { return core_.abort_all(kSubmittedUs); },
      [&](RequestId) {
        return core_.engine_failed({ErrorCode::device_failed, "gone"});
      },
  };
  for (std::size_t way = 0; way < ways_to_end.size(); ++way) {
    SCOPED_TRACE(way);
    const RequestId id = submit(short_lived);
    const Effects ended = ways_to_end[way](id);
    EXPECT_EQ(ended.adapters_withdrawn, std::vector{id});
    EXPECT_TRUE(ended.adapters_released.empty());
    EXPECT_FALSE(core_.is_live(id));
    // The answer and the withdrawal have crossed.
    EXPECT_EQ(core_.adapter_acquired(id, kSql).adapters_released, std::vector{kSql.id});
    EXPECT_TRUE(core_.adapter_acquired(id, fail(kBroken)).empty());
  }
}

TEST_F(RouterAdapters, ARequestThatEndsOutsideWithItsAdapterReleasesIt) {
  GenerateRequest short_lived = sql_request();
  short_lived.timeout_ms = 1;
  const std::vector<std::function<Effects(RequestId)>> ways_to_end{
      [&](RequestId id) { return core_.abort(id, kSubmittedUs); },
      [&](RequestId) { return core_.client_gone(kClient, kSubmittedUs); },
      [&](RequestId) { return core_.expire(kSubmittedUs + 2'000); },
      [&](RequestId id) { return core_.prompt_encoded(id, fail(ErrorCode::invalid_request, "no UTF-8")); },
      [&](RequestId) { return core_.abort_all(kSubmittedUs); },
      [&](RequestId) {
        return core_.engine_failed({ErrorCode::device_failed, "gone"});
      },
  };
  for (std::size_t way = 0; way < ways_to_end.size(); ++way) {
    SCOPED_TRACE(way);
    const RequestId id = submit(short_lived);
    EXPECT_TRUE(core_.adapter_acquired(id, kSql).empty());
    const Effects ended = ways_to_end[way](id);
    EXPECT_EQ(ended.adapters_released, std::vector{kSql.id});
    EXPECT_TRUE(ended.adapters_withdrawn.empty());
  }
}

TEST_F(RouterAdapters, ARequestInTheEngineHoldsItsAdapterUntilTheEngineHasEndedIt) {
  const RequestId id = in_engine();
  EXPECT_TRUE(core_.abort(id, kSubmittedUs).adapters_released.empty());
  EXPECT_TRUE(core_.engine_failed({ErrorCode::device_failed, "gone"}).adapters_released.empty());
  EXPECT_EQ(core_.closed(id, {}, kSubmittedUs).adapters_released, std::vector{kSql.id});
  EXPECT_TRUE(core_.closed(id, {}, kSubmittedUs).adapters_released.empty());
}

TEST_F(RouterAdapters, ARequestThatMovesToAnotherReplicaKeepsItsAdapter) {
  RouterCore core(limits_with_adapters(2), 0);
  const auto submitted = core.submit(kClient, 1, sql_request(), kSubmittedUs);
  core.adapter_acquired(submitted->id, kSql);
  const Effects entered = core.prompt_encoded(submitted->id, TokenIds{1, 2, 3});
  const auto spec = std::get<SharedSpec>(entered.settled.at(0).outcome);
  const ReplicaId from = core.replica_of(submitted->id);
  core.replica_down(from);
  const Effects moved = core.hand_over(from, {spec});
  ASSERT_EQ(moved.moved.size(), 1U);
  EXPECT_EQ(moved.moved[0]->adapter.id, kSql.id);
  EXPECT_TRUE(moved.adapters_released.empty());
  EXPECT_EQ(core.closed(submitted->id, {}, kSubmittedUs).adapters_released, std::vector{kSql.id});
}

TEST_F(RouterAdapters, AnEngineWithoutAdaptersRefusesTheName) {
  auto limits = limits_with_adapters();
  limits.has_adapters = false;
  RouterCore core(limits, 0);
  const auto refused = core.submit(kClient, 1, sql_request(), kSubmittedUs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unknown_adapter);
  EXPECT_EQ(refused.error().param, "adapter");
  EXPECT_EQ(refused.error().message,
            "there is no adapter \"sql\": the engine was started without enable_lora or enable_prompt_adapter");
}

TEST_F(RouterAdapters, ANameThatIsTooLongIsRefused) {
  EXPECT_TRUE(core_.submit(kClient, 1, sql_request(std::string(kMaxAdapterNameBytes, 'a')), kSubmittedUs));
  const auto refused = core_.submit(kClient, 2, sql_request(std::string(kMaxAdapterNameBytes + 1, 'a')), kSubmittedUs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "adapter");
}

TEST_F(RouterAdapters, ASavedStateKeepsWaitsAndHolds) {
  const RequestId waits = waiting();
  const RequestId holds = holding();
  const RequestId runs = in_engine();
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  core_.save(out);
  RouterCore loaded(limits_with_adapters(), 0);
  Decoder in(bytes);
  ASSERT_TRUE(loaded.load(in));
  const Effects entered = loaded.adapter_acquired(waits, kSql);
  ASSERT_EQ(entered.settled.size(), 1U);
  EXPECT_EQ(std::get<SharedSpec>(entered.settled[0].outcome)->adapter.name, "sql");
  EXPECT_EQ(loaded.abort(holds, kSubmittedUs).adapters_released, std::vector{kSql.id});
  EXPECT_EQ(loaded.closed(runs, {}, kSubmittedUs).adapters_released, std::vector{kSql.id});
  // The same bytes fit no engine without adapters.
  auto without = limits_with_adapters();
  without.has_adapters = false;
  RouterCore other(without, 0);
  Decoder again(bytes);
  EXPECT_FALSE(other.load(again));
}

}  // namespace
}  // namespace pagoda::routing
