#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "pagoda/engine_parts.hpp"
#include "pagoda/spawn_engine.hpp"
#include "tests/pagoda/test_models.hpp"

namespace pagoda {
namespace {

using namespace std::chrono_literals;

/// What a sink actor has received.
struct Received {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<RequestOutput> outputs;

  void add(const OutputBatch& batch) {
    const std::lock_guard lock(mutex);
    outputs.insert(outputs.end(), batch.outputs.begin(), batch.outputs.end());
    changed.notify_all();
  }
  bool wait_for(const std::function<bool(const std::vector<RequestOutput>&)>& ready) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 300s, [&] { return ready(outputs); });
  }
  std::size_t terminals() {
    const std::lock_guard lock(mutex);
    std::size_t count = 0;
    for (const RequestOutput& o : outputs) count += o.done || o.error ? 1 : 0;
    return count;
  }
};

actors::SinkActor::behavior_type recording_sink(actors::SinkActor::pointer, std::shared_ptr<Received> received) {
  return {[received = std::move(received)](const OutputBatch& batch) {
    actors::happens_before::received();
    received->add(batch);
  }};
}

class EngineActors : public ::testing::Test {
 protected:
  EngineActors() {
    init_actor_types();
    actors::configure_pool(config_, 2);
    system_ = std::make_unique<caf::actor_system>(config_);
    EngineConfig config;
    config.model = test::demo_model();
    config.threads = 1;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 128;
    auto parts = load_engine_parts(config);
    EXPECT_TRUE(parts) << parts.error().message;
    auto running = actors::spawn_actors(*system_, std::move(*parts));
    EXPECT_TRUE(running) << running.error().message;
    engine_ = std::move(*running);
    sink_ = system_->spawn(recording_sink, received_);
  }

  ~EngineActors() override {
    caf::scoped_actor self{*system_};
    caf::anon_send_exit(engine_.supervisor, caf::exit_reason::user_shutdown);
    self->wait_for(engine_.supervisor);
    caf::anon_send_exit(sink_, caf::exit_reason::user_shutdown);
    engine_ = {};
    sink_ = nullptr;
  }

  template <class Answer, class Handle, class Message>
  Answer ask_of(const Handle& whom, const Message& message) {
    caf::scoped_actor self{*system_};
    Answer answer{};
    actors::ask(self, whom, message, [&](Answer& a) { answer = std::move(a); });
    return answer;
  }
  template <class Answer, class Message>
  Answer ask(const Message& message) {
    return ask_of<Answer>(engine_.actors.router, message);
  }

  Result<RequestId> submit(std::uint64_t tag, std::int64_t max_tokens, const actors::SinkActor& sink,
                           bool beams = false) {
    auto request = std::make_shared<GenerateRequest>();
    request->prompt = "Once upon a time";
    request->sampling.max_tokens = max_tokens;
    request->sampling.ignore_eos = true;
    request->sampling.seed = tag;
    if (beams) {
      request->sampling.use_beam_search = true;
      request->sampling.n = 3;
      request->sampling.temperature = 0;
    }
    caf::scoped_actor self{*system_};
    Result<RequestId> ticket = fail(ErrorCode::internal, "no answer");
    actors::ask(self, engine_.actors.router, actors::SubmitRequest{request, sink, tag},
                [&](actors::SubmitReply& reply) { ticket = reply.ticket; });
    return ticket;
  }

  /// Gives the tokenizer work of its own, past the router, for a while.
  void keep_tokenizer_busy() {
    static const std::string text = [] {
      std::string long_text;
      while (long_text.size() < std::size_t{4} << 20) long_text += "a b ";
      return long_text;
    }();
    actors::send_anonymously(engine_.actors.tokenizer, actors::TokenizeRequest{text, false});
  }

  /// Submits without waiting for the ticket.
  void post(std::uint64_t tag, const actors::SinkActor& sink) {
    auto request = std::make_shared<GenerateRequest>();
    request->prompt = "Once upon a time";
    actors::send_anonymously(engine_.actors.router,
                             actors::SubmitRequest{std::shared_ptr<const GenerateRequest>(request), sink, tag});
  }

  bool comes_to_rest() {
    for (int i = 0; i < 500; ++i) {
      const auto stats = ask<EngineStats>(actors::GetStats{});
      const bool empty = stats.requests_running + stats.requests_waiting + stats.requests_swapped == 0;
      if (empty && stats.device_blocks_free + stats.device_blocks_cached == stats.device_blocks_total) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  actors::RunningEngine engine_;
  std::shared_ptr<Received> received_ = std::make_shared<Received>();
  actors::SinkActor sink_;
};

bool all_ended(const std::vector<RequestOutput>& outputs, std::size_t count) {
  std::size_t ended = 0;
  for (const RequestOutput& output : outputs) ended += output.done || output.error ? 1 : 0;
  return ended == count;
}

TEST_F(EngineActors, ADeadWorkerIsReplacedAndNoTokenIsLostOrDoubled) {
  constexpr std::size_t kRequests = 6;
  const auto submit_all = [&] {
    for (std::uint64_t tag = 1; tag <= kRequests; ++tag) ASSERT_TRUE(submit(tag, 300, sink_, tag % 3 == 0));
  };
  submit_all();
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return outputs.size() > 20; }));
  caf::anon_send_exit(engine_.replicas.at(0).actors.devices.workers.at(0), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, kRequests); }));
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).worker_restarts_total, 1);

  std::map<std::uint64_t, TokenIds> interrupted;
  for (const RequestOutput& output : received_->outputs) {
    ASSERT_FALSE(output.error) << output.error->message;
    if (output.done) interrupted[output.tag] = output.done->outputs.at(0).token_ids;
  }
  received_->outputs.clear();
  submit_all();
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, kRequests); }));
  for (const RequestOutput& output : received_->outputs) {
    if (!output.done) continue;
    EXPECT_EQ(output.done->outputs.at(0).token_ids, interrupted[output.tag]) << "tag " << output.tag;
  }
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(EngineActors, WorkersAndCacheEnginesMayDieAtAnyTimeAndNoTokenChanges) {
  constexpr std::size_t kRequests = 9;
  std::mt19937_64 random(11);
  const auto run = [&](bool disturbed) {
    {
      const std::lock_guard lock(received_->mutex);
      received_->outputs.clear();
    }
    for (std::uint64_t tag = 1; tag <= kRequests; ++tag) EXPECT_TRUE(submit(tag, 120, sink_, tag % 3 == 0));
    if (disturbed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
      const auto replica = ask_of<actors::Replica>(engine_.replicas.at(0).supervisor, actors::GetReplica{});
      if (random() % 3 == 0) {
        caf::anon_send_exit(replica.devices.workers.at(0), caf::exit_reason::kill);
      } else {
        caf::anon_send_exit(replica.devices.cache_engines.at(0), caf::exit_reason::kill);
      }
    }
    EXPECT_TRUE(received_->wait_for([&](const auto& outputs) { return all_ended(outputs, kRequests); }));
    std::map<std::uint64_t, std::vector<TokenIds>> tokens;
    const std::lock_guard lock(received_->mutex);
    for (const RequestOutput& output : received_->outputs) {
      EXPECT_FALSE(output.error) << output.error->message;
      if (!output.done) continue;
      for (const SequenceResult& sequence : output.done->outputs) tokens[output.tag].push_back(sequence.token_ids);
    }
    return tokens;
  };
  const auto expected = run(false);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(run(true), expected) << "round " << round;
  const auto stats = ask<EngineStats>(actors::GetStats{});
  EXPECT_GT(stats.worker_restarts_total, 10);
  EXPECT_EQ(stats.requests_failed_total, 0);
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(EngineActors, RequestsOfADeadSinkAreAborted) {
  const actors::SinkActor dying = system_->spawn(recording_sink, std::make_shared<Received>());
  for (std::uint64_t tag = 1; tag <= 4; ++tag) ASSERT_TRUE(submit(tag, 900, dying));
  caf::anon_send_exit(dying, caf::exit_reason::user_shutdown);
  EXPECT_TRUE(comes_to_rest());
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).requests_aborted_total, 4);
}

TEST_F(EngineActors, ARequestAtTheTokenizerWaitsInTheStatsAndEndsAtOnceWhenItIsCancelled) {
  keep_tokenizer_busy();
  for (std::uint64_t tag = 1; tag <= 3; ++tag) post(tag, sink_);
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).requests_waiting, 3);
  EXPECT_TRUE(ask<actors::CancelReply>(actors::CancelRequest{sink_, 2}).found);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 1); }));
  const auto stats = ask<EngineStats>(actors::GetStats{});
  EXPECT_EQ(stats.requests_waiting, 2) << "the tokenizer should still be busy";
  EXPECT_EQ(stats.requests_aborted_total, 1);
  {
    const std::lock_guard lock(received_->mutex);
    ASSERT_TRUE(received_->outputs.at(0).done);
    EXPECT_EQ(received_->outputs.at(0).tag, 2U);
    EXPECT_EQ(received_->outputs.at(0).done->outputs.at(0).finish_reason, FinishReason::abort);
  }
  post(2, sink_);  // its tag is free again
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 4); }));
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(EngineActors, ADeadSinkAndADrainEndWhatIsAtTheTokenizerAtOnce) {
  keep_tokenizer_busy();
  const actors::SinkActor dying = system_->spawn(recording_sink, std::make_shared<Received>());
  for (std::uint64_t tag = 1; tag <= 4; ++tag) post(tag, dying);
  post(1, sink_);
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).requests_waiting, 5);
  caf::anon_send_exit(dying, caf::exit_reason::user_shutdown);
  for (int i = 0; i < 200 && ask<EngineStats>(actors::GetStats{}).requests_waiting > 1; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).requests_waiting, 1);
  EXPECT_EQ(ask<actors::Drained>(actors::Drain{1}).aborted, 1);
  EXPECT_EQ(received_->terminals(), 1U);
}

TEST_F(EngineActors, AnOpThatTokenizesIsAnsweredInItsTurn) {
  keep_tokenizer_busy();
  const auto tokens = ask<actors::TokenizeReply>(actors::TokenizeRequest{"Once upon", false});
  ASSERT_TRUE(tokens.token_ids);
  const std::vector<std::int64_t> ids(tokens.token_ids->begin(), tokens.token_ids->end());
  EXPECT_EQ(*ask<actors::DetokenizeReply>(actors::DetokenizeRequest{ids, true}).text, "Once upon");
}

TEST_F(EngineActors, TextIsTokenizedWithItsLiterals) {
  const std::string text = "<|end_of_text|>Once";
  const auto tokenize = [&](std::vector<ByteRange> literals) {
    return ask<actors::TokenizeReply>(actors::TokenizeRequest{text, false, std::move(literals)}).token_ids;
  };
  EXPECT_EQ(tokenize({}).value().front(), 1);
  const TokenIds literal = tokenize({{0, text.size()}}).value();
  EXPECT_EQ(std::ranges::count(literal, 1), 0);
  EXPECT_EQ(tokenize({{0, text.size() + 1}}).error().param, "literals");
}

TEST_F(EngineActors, AnExitOvertakesWhatTheTokenizerStillHasToDo) {
  const auto begin = std::chrono::steady_clock::now();
  keep_tokenizer_busy();
  ask<actors::TokenizeReply>(actors::TokenizeRequest{"Once upon", false});
  const auto one_text = std::chrono::steady_clock::now() - begin;
  for (int i = 0; i < 40; ++i) keep_tokenizer_busy();
  const auto before = std::chrono::steady_clock::now();
  caf::anon_send_exit(engine_.supervisor, caf::exit_reason::user_shutdown);
  caf::scoped_actor self{*system_};
  self->wait_for(engine_.actors.tokenizer);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 15 * one_text);
}

TEST_F(EngineActors, DrainRefusesNewRequestsAndAbortsLiveOnesWhenItsTimeIsOver) {
  ASSERT_TRUE(submit(1, 8, sink_));
  ASSERT_TRUE(submit(2, 950, sink_));
  const auto drained = ask<actors::Drained>(actors::Drain{1});
  EXPECT_GE(drained.aborted, 1);
  const auto refused = submit(3, 8, sink_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::shutting_down);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 2); }));
}

TEST_F(EngineActors, ATagIsRefusedWhileItsRequestLives) {
  ASSERT_TRUE(submit(1, 900, sink_));
  const auto second = submit(1, 8, sink_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::duplicate_id);
  EXPECT_TRUE(ask<actors::CancelReply>(actors::CancelRequest{sink_, 1}).found);
  EXPECT_FALSE(ask<actors::CancelReply>(actors::CancelRequest{sink_, 99}).found);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 1); }));
}

TEST_F(EngineActors, WhenAnActorDiesWhoeverWaitsIsToldAndTheRouterRefusesFromThenOn) {
  for (std::uint64_t tag = 11; tag <= 14; ++tag) ASSERT_TRUE(submit(tag, 900, sink_));  // which take a while
  for (int i = 0; i < 10; ++i) keep_tokenizer_busy();                                   // so does each of these
  auto refused = std::async(std::launch::async, [&] { return submit(2, 8, sink_); });
  auto tokens = std::async(std::launch::async, [&] {
    return ask<actors::TokenizeReply>(actors::TokenizeRequest{"Once", false});
  });
  while (ask<EngineStats>(actors::GetStats{}).requests_waiting == 0) std::this_thread::sleep_for(1ms);
  caf::anon_send_exit(engine_.replicas.at(0).actors.scheduler, caf::exit_reason::kill);
  const std::string why = "an actor of the engine has ended";
  const auto message_of = [](const auto& result) { return result ? "no error" : result.error().message; };
  EXPECT_EQ(message_of(refused.get()), why);
  caf::scoped_actor self{*system_};
  self->wait_for(engine_.supervisor);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 4); }));
  EXPECT_EQ(received_->terminals(), 4U);
  ASSERT_TRUE(received_->outputs.back().error);
  EXPECT_EQ(received_->outputs.back().error->message, why);
  EXPECT_EQ(ask<EngineStats>(actors::GetStats{}).health, why);
  EXPECT_EQ(message_of(submit(3, 8, sink_)), why);
  EXPECT_EQ(message_of(tokens.get().token_ids), why);
}

TEST_F(EngineActors, EveryLiveRequestIsToldWhenTheEngineStops) {
  for (std::uint64_t tag = 1; tag <= 3; ++tag) ASSERT_TRUE(submit(tag, 900, sink_));
  caf::anon_send_exit(engine_.supervisor, caf::exit_reason::user_shutdown);
  ASSERT_TRUE(received_->wait_for([](const auto& outputs) { return all_ended(outputs, 3); }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(received_->terminals(), 3U);
}

}  // namespace
}  // namespace pagoda
