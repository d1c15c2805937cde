#include "actors/model_pool.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace pagoda::actors {
namespace {

/// SubmitRequest::waited_us of the last request.
const auto waited_us = std::make_shared<std::atomic<TimeUs>>(0);

/// A router whose requests end at once, with `life` tokens.
RequestRouterActor::behavior_type fake_router(RequestRouterActor::pointer self, int life) {
  return {
      [self, life](const SubmitRequest& message) {
        *waited_us = message.waited_us;
        RequestResult result;
        result.usage.completion_tokens = life;
        OutputBatch batch;
        batch.outputs.push_back({.request_id = 1, .tag = message.tag, .deltas = {}, .done = result, .error = {}});
        send(self, message.sink, std::move(batch));
        return SubmitReply{RequestId{1}};
      },
      [](const CancelRequest&) { return CancelReply{}; },
      [](const ListRequests&) { return RequestList{}; },
      [](const AbortRequest&) { return CancelReply{}; },
      [](const ResetPrefixCache&) { return PrefixCacheReset{}; },
      [](const AddAdapter&) { return AdapterReply{}; },
      [](const RemoveAdapter&) { return AdapterReply{}; },
      [](const ListAdapters&) { return AdapterList{}; },
      [](const GetStats&) { return EngineStats{}; },
      [](const GetMetrics&) { return metrics::EngineMetrics{}; },
      [](const GetView&) { return view::EngineView{}; },
      [](const GetModelInfo&) { return ModelInfo{}; },
      [](const TokenizeRequest&) { return TokenizeReply{TokenIds{}}; },
      [](const DetokenizeRequest&) { return DetokenizeReply{std::string()}; },
      [](const Drain&) { return Drained{}; },
      [](const DrainReplica&) { return ReplicaDrained{}; },
      [](const StartReplica&) { return ReplicaStarted{}; },
      [](const MigrateRequest&) { return RequestMigrated{}; },
      [](const ConnectRoot&) {},
      [](const ReplicaDown&) {},
      [](const AwaitIdle&) { return Idle{}; },
      [](const SinkGone&) {},
      [](const DrainTimeout&) {},
      [](const DeadlineDue&) {},
      [](const RequestClosed&) {},
      [](const ChildGone&) {},
      [](const EngineFailed&) {},
  };
}

caf::behavior fake_supervisor(caf::event_based_actor*, int) {
  return {[](int) {}};
}

SinkActor::behavior_type counting_sink(SinkActor::pointer, const std::shared_ptr<std::atomic<int>>& last_life) {
  return {[last_life](const OutputBatch& batch) {
    happens_before::received();
    for (const auto& output : batch.outputs) {
      *last_life = output.done ? static_cast<int>(output.done->usage.completion_tokens) : -1;
    }
  }};
}

class ModelPool : public testing::Test {
 protected:
  ModelPool() : system_(configured()) {}

  static caf::actor_system_config& configure(caf::actor_system_config& config) {
#ifdef CAF_VERSION_MAJOR
    caf::init_global_meta_objects<caf::id_block::pagoda>();
    caf::init_global_meta_objects<caf::id_block::pagoda_pool>();
    caf::core::init_global_meta_objects();
#endif
    configure_pool(config, 2);
    return config;
  }
  caf::actor_system_config& configured() {
    return configure(config_);
  }

  ~ModelPool() override {
    caf::anon_send_exit(pool_.pool, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(sink_, caf::exit_reason::user_shutdown);
  }

  void start(std::function<Result<SharedEngine>()> load, std::int64_t default_timeout_ms = 0) {
    PoolModel model;
    model.default_timeout_ms = default_timeout_ms;
    model.name = "m";
    model.load = std::move(load);
    model.line = {.max_waiting = 8, .max_bytes = 1 << 20, .max_wait_us = 60'000'000};
    residency_ = model.residency;
    model_pool::ModelPoolConfig config;
    config.models = {{.bytes = 1, .device = 0}};
    config.device_bytes = {10};
    pool_ = spawn_model_pool(system_, config, {model});
    sink_ = system_.spawn(counting_sink, last_life_);
  }

  Result<SharedEngine> engine() {
    supervisor_ = system_.spawn(fake_supervisor, 0);
    auto made = std::make_shared<const LoadedEngine>(
        system_.spawn(fake_router, loads_ + 1), supervisor_,
        std::vector{LoadedEngine::Devices{supervisor_, [] { return std::vector<caf::actor>{}; }}});
    ++loads_;  // last: who sees it may read supervisor_
    return made;
  }

  void keep_alive(TimeUs time_us) {
    send_anonymously(pool_.models.front(), SetKeepAlive{0, time_us});
  }

  bool is_unloaded_after(std::int64_t unloads) {
    return eventually([&] { return residency_->unloads == unloads; });
  }

  SubmitReply submit() {
    caf::scoped_actor self{system_};
    SubmitReply reply{fail(ErrorCode::internal, "no answer")};
    auto request = std::make_shared<GenerateRequest>();
    request->prompt = "x";
    ask(self, pool_.models.front(), SubmitRequest{request, sink_, ++tag_},
        [&](const SubmitReply& answer) { reply = answer; });
    return reply;
  }

  template <class Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  caf::actor_system_config config_;
  caf::actor_system system_;
  SpawnedPool pool_;
  SinkActor sink_;
  model_pool::SharedResidency residency_;
  std::atomic<int> loads_ = 0;
  caf::actor supervisor_;
  std::uint64_t tag_ = 0;
  std::shared_ptr<std::atomic<int>> last_life_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(ModelPool, AnEngineThatEndsByItselfIsLoadedAnewByTheNextRequest) {
  start([this] { return engine(); });
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_TRUE(eventually([&] { return *last_life_ == 1; }));
  caf::anon_send_exit(supervisor_, caf::exit_reason::kill);
  EXPECT_TRUE(eventually([&] { return residency_->state == model_pool::ModelState::unloaded; }));
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_TRUE(eventually([&] { return *last_life_ == 2; }));
}

TEST_F(ModelPool, ALoadThatThrowsFailsWhoWaitedForItAndNothingElse) {
  start([this]() -> Result<SharedEngine> {
    if (loads_++ == 0) throw std::runtime_error("the disk is gone");
    return engine();
  });
  const auto refused = submit();
  ASSERT_FALSE(refused.ticket.has_value());
  EXPECT_EQ(refused.ticket.error().message, "the model m cannot be loaded; the server's log says why");
  EXPECT_EQ(residency_->load_failures, 1);
  EXPECT_TRUE(submit().ticket.has_value());
}

TEST_F(ModelPool, ARequestWithoutATimeOfItsOwnHasTheModelsWhileItLoads) {
  std::atomic<bool> may_end = false;
  start(
      [&] {
        while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return engine();
      },
      50);
  const auto late = submit();
  may_end = true;
  ASSERT_FALSE(late.ticket.has_value());
  EXPECT_EQ(late.ticket.error().code, ErrorCode::timeout);
  EXPECT_TRUE(eventually([&] { return submit().ticket.has_value(); }));
}

TEST_F(ModelPool, TheRouterIsToldHowLongARequestHasWaited) {
  start([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    return engine();
  });
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_GE(waited_us->load(), 60'000);
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_EQ(waited_us->load(), 0);
}

TEST_F(ModelPool, TheMemoryOfAnEngineIsFreeWhenThePresentDeviceHasGone) {
  const caf::actor supervisor = system_.spawn(fake_supervisor, 0);
  const caf::actor keeper = system_.spawn(fake_supervisor, 0);
  const caf::actor first = system_.spawn(fake_supervisor, 0);
  const caf::actor second = system_.spawn(fake_supervisor, 0);
  const auto present = std::make_shared<std::vector<caf::actor>>(std::vector{first});
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  auto engine =
      std::make_shared<const LoadedEngine>(system_.spawn(fake_router, 0), supervisor,
                                           std::vector{LoadedEngine::Devices{keeper, [present] { return *present; }}});
  engine->when_gone([gone] { *gone = true; });
  *present = {second};  // the first is replaced
  caf::scoped_actor self{system_};
  caf::anon_send_exit(first, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(keeper, caf::exit_reason::user_shutdown);
  engine.reset();
  self->wait_for(supervisor, keeper, first);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(*gone);
  caf::anon_send_exit(second, caf::exit_reason::user_shutdown);
  EXPECT_TRUE(eventually([&] { return gone->load(); }));
}

TEST_F(ModelPool, EndsWhileAModelLoadsAndTheEngineEndsWithIt) {
  std::atomic<bool> has_begun = false;
  std::atomic<bool> may_end = false;
  start([&] {
    has_begun = true;
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine();
  });
  caf::scoped_actor self{system_};
  send_anonymously(pool_.pool, ModelUse{0, ModelUse::Kind::wanted});
  EXPECT_TRUE(eventually([&] { return has_begun.load(); }));
  caf::anon_send_exit(pool_.pool, caf::exit_reason::user_shutdown);
  self->wait_for(pool_.pool);
  may_end = true;
  EXPECT_TRUE(eventually([&] { return loads_ == 1; }));
  self->wait_for(supervisor_);
}

TEST_F(ModelPool, AKeepAliveOfZeroBehindARequestThatWaitsEndsTheLoadItRunsOn) {
  std::atomic<bool> may_end = false;
  start([&] {
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine();
  });
  keep_alive(0);  // no request waits
  auto request = std::make_shared<GenerateRequest>();
  request->prompt = "x";
  caf::scoped_actor self{system_};
  send_anonymously(pool_.models.front(), SubmitRequest{request, sink_, ++tag_});
  EXPECT_TRUE(eventually([&] { return residency_->state == model_pool::ModelState::loading; }));
  keep_alive(0);
  may_end = true;
  EXPECT_TRUE(eventually([&] { return *last_life_ == 1; }));
  EXPECT_TRUE(is_unloaded_after(1));
  EXPECT_EQ(loads_, 1);
  EXPECT_TRUE(submit().ticket.has_value());
  constexpr TimeUs kLong = 3'600'000'000;
  keep_alive(kLong);
  EXPECT_TRUE(eventually([&] { return residency_->expires_unix_s > 0; })) << "the next load stays until it is told";
  EXPECT_EQ(loads_, 2);
  keep_alive(0);
  EXPECT_TRUE(is_unloaded_after(2)) << "without work it goes at once";
}

TEST_F(ModelPool, AKeepAliveOfAModelThatNobodyWaitsForIsNotThatOfTheNextLoad) {
  start([this] { return engine(); });
  keep_alive(0);
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_TRUE(eventually([&] { return *last_life_ == 1; }));
  EXPECT_TRUE(submit().ticket.has_value());
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(residency_->unloads, 0);
}

TEST_F(ModelPool, BehindADrainNothingIsLoadedAnyMore) {
  start([this] { return engine(); });
  caf::scoped_actor self{system_};
  bool drained = false;
  ask(self, pool_.models.front(), Drain{0}, [&](const Drained&) { drained = true; });
  EXPECT_TRUE(drained);
  const auto refused = submit();
  ASSERT_FALSE(refused.ticket.has_value());
  EXPECT_EQ(refused.ticket.error().code, ErrorCode::shutting_down);
  EXPECT_EQ(loads_, 0);
}

}  // namespace
}  // namespace pagoda::actors
