// Tests requests with adapters over fake devices: the adapter store, the router and the workers together.

#include <algorithm>
#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "tests/actors/engine_of_fakes.hpp"

namespace pagoda::actors {
namespace {

using namespace std::chrono_literals;
using fakes::EngineOfFakes;
using testing::ElementsAre;
using testing::HasSubstr;

class Adapters : public EngineOfFakes {
 protected:
  explicit Adapters(std::int32_t num_replicas = 1, Devices devices = Devices::here)
      : EngineOfFakes({.devices = devices, .num_replicas = num_replicas, .num_ranks = 1, .max_adapters = 2}) {}
  ~Adapters() override { unblock(); }

  static std::string path_of(const std::string& name) { return "/adapters/" + name; }
  Status add(const std::string& name) {
    return ask<AdapterReply>(shared_.router, AddAdapter{name, path_of(name)}).status;
  }
  void add_all(const std::vector<std::string>& names) {
    for (const std::string& name : names) ASSERT_TRUE(add(name)) << name;
  }
  Status remove(const std::string& name) { return ask<AdapterReply>(shared_.router, RemoveAdapter{name}).status; }
  std::vector<AdapterInfo> list() { return ask<AdapterList>(shared_.router, ListAdapters{}).adapters; }
  std::vector<std::string> loaded() {
    std::vector<std::string> names;
    for (const AdapterInfo& adapter : list()) {
      if (adapter.is_loaded) names.push_back(adapter.name);
    }
    return names;
  }
  std::int64_t num_requests_of(const std::string& name) {
    const auto all = list();
    const auto found = std::ranges::find(all, name, &AdapterInfo::name);
    return found == all.end() ? -1 : found->num_requests;
  }
  metrics::AdapterMetrics adapter_metrics() {
    return ask<metrics::EngineMetrics>(shared_.router, GetMetrics{}).adapters.value();
  }

  void block(const std::string& name) {
    const std::lock_guard lock(adapter_files_->mutex);
    adapter_files_->blocked.insert(path_of(name));
  }
  void unblock() {
    const std::lock_guard lock(adapter_files_->mutex);
    adapter_files_->blocked.clear();
    adapter_files_->changed.notify_all();
  }
  void set_broken(const std::string& name, bool is_broken) {
    const std::lock_guard lock(adapter_files_->mutex);
    if (is_broken) {
      adapter_files_->broken.insert(path_of(name));
    } else {
      adapter_files_->broken.erase(path_of(name));
    }
  }
  int num_reads(const std::string& name) {
    const std::lock_guard lock(adapter_files_->mutex);
    return adapter_files_->num_reads[path_of(name)];
  }
  void wait_for_reads(const std::string& name, int count) {
    std::unique_lock lock(adapter_files_->mutex);
    ASSERT_TRUE(
        adapter_files_->changed.wait_for(lock, 60s, [&] { return adapter_files_->num_reads[path_of(name)] >= count; }));
  }
  /// Returns the names of the adapters that rows had, in the order of their ids.
  std::vector<std::string> adapters_of_rows() {
    const std::lock_guard lock(runners_->mutex);
    std::vector<std::string> names;
    for (const auto& [id, adapter] : runners_->adapters) {
      EXPECT_EQ(adapter.second, path_of(adapter.first));
      names.push_back(adapter.first);
    }
    return names;
  }
  template <class Condition>
  static bool comes_true(Condition is_true) {
    for (int i = 0; i < 60'000; ++i) {
      if (is_true()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  bool has_tokens() {
    return comes_true([&] {
      const auto all = ask<RequestList>(shared_.router, ListRequests{}).requests;
      return std::ranges::any_of(all, [](const LiveRequest& one) { return one.generated_tokens > 0; });
    });
  }
};

TEST_F(Adapters, RequestsOfSeveralAdaptersAndOfTheBaseRunTogether) {
  add_all({"sql", "chat"});
  runners_->step_us = 500;
  ASSERT_TRUE(submit(1, 40, "sql"));
  ASSERT_TRUE(submit(2, 40, "chat"));
  ASSERT_TRUE(submit(3, 40));
  ASSERT_TRUE(has_tokens());
  const auto requests = ask<RequestList>(shared_.router, ListRequests{}).requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].adapter, "sql");
  EXPECT_EQ(requests[1].adapter, "chat");
  EXPECT_EQ(requests[2].adapter, "");
  const auto view = ask<view::EngineView>(shared_.router, GetView{});
  EXPECT_TRUE(std::ranges::any_of(view.queues.requests, [](const auto& one) { return one.adapter == "sql"; }));
  EXPECT_EQ(num_requests_of("sql"), 1);
  EXPECT_THAT(adapter_metrics().running, ElementsAre("chat", "sql"));
  ASSERT_TRUE(received_->wait_for(3));
  for (const std::uint64_t tag : {1U, 2U, 3U}) expect_right(tag, 40);
  EXPECT_THAT(adapters_of_rows(), ElementsAre("sql", "chat"));
  EXPECT_TRUE(comes_true([&] { return num_requests_of("sql") == 0 && num_requests_of("chat") == 0; }));
  const auto ended = ask<view::EngineView>(shared_.router, GetView{}).ended;
  EXPECT_TRUE(std::ranges::any_of(ended, [](const auto& one) { return one.adapter == "chat"; }));
  EXPECT_EQ(num_reads("sql"), 1);
}

TEST_F(Adapters, AnUnknownNameIsRefusedWithTheKnownOnes) {
  add_all({"sql", "chat"});
  const auto refused = submit(1, 5, "sq1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unknown_adapter);
  EXPECT_EQ(refused.error().param, "adapter");
  EXPECT_EQ(refused.error().message, "there is no adapter \"sq1\"; the adapters are: chat, sql");
  ASSERT_TRUE(submit(1, 5, "sql"));
  EXPECT_TRUE(received_->wait_for(1));
}

TEST_F(Adapters, AnAdapterThatCannotBeLoadedIsNotAdded) {
  set_broken("sql", true);
  const Status refused = add("sql");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_adapter);
  EXPECT_THAT(refused.error().message, HasSubstr("/adapters/sql is broken"));
  EXPECT_TRUE(list().empty());
  EXPECT_FALSE(submit(1, 5, "sql"));
  set_broken("sql", false);
  EXPECT_TRUE(add("sql"));
  const Status again = add("sql");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().param, "lora_name");
}

TEST_F(Adapters, TheLeastRecentlyUsedOneMakesRoomAndIsLoadedAgainWhenItIsNamed) {
  add_all({"a", "b", "c"});
  EXPECT_THAT(loaded(), ElementsAre("b", "c"));
  ASSERT_TRUE(submit(1, 10, "a"));
  ASSERT_TRUE(received_->wait_for(1));
  EXPECT_THAT(loaded(), ElementsAre("a", "c"));
  EXPECT_EQ(num_reads("a"), 2);
  const auto counts = adapter_metrics();
  EXPECT_EQ(counts.loads, 4);
  EXPECT_EQ(counts.evictions, 2);
  EXPECT_EQ(counts.loaded, 2);
  EXPECT_EQ(counts.max_in_step, 2);
}

TEST_F(Adapters, ALoadThatFailsRefusesOnlyTheRequestsOfItsAdapter) {
  add_all({"a", "b", "c"});
  set_broken("a", true);
  runners_->step_us = 500;
  ASSERT_TRUE(submit(1, 40, "c"));
  const auto refused = submit(2, 40, "a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_adapter);
  ASSERT_TRUE(submit(3, 40, "c"));
  set_broken("a", false);
  ASSERT_TRUE(submit(4, 40, "a")) << "the file is there again";
  ASSERT_TRUE(received_->wait_for(3));
  for (const std::uint64_t tag : {1U, 3U, 4U}) expect_right(tag, 40);
}

TEST_F(Adapters, ARequestWaitsWhileAllLoadedAdaptersAreInUse) {
  add_all({"a", "b", "c"});
  runners_->step_us = 1000;
  ASSERT_TRUE(submit(1, 100, "b"));
  ASSERT_TRUE(submit(2, 100, "c"));
  auto waits = std::async(std::launch::async, [&] { return submit(3, 10, "a"); });
  ASSERT_TRUE(comes_true([&] { return adapter_metrics().waiting == std::vector<std::string>{"a"}; }));
  EXPECT_EQ(waits.wait_for(0s), std::future_status::timeout);
  ASSERT_TRUE(ask<CancelReply>(shared_.router, CancelRequest{sink_, 1}).found);
  ASSERT_TRUE(waits.get());
  ASSERT_TRUE(received_->wait_for(3));
  expect_right(2, 100);
  expect_right(3, 10);
}

TEST_F(Adapters, ARequestThatIsCancelledWhileItsAdapterLoadsHoldsNothing) {
  add_all({"a", "b", "c"});
  block("a");
  auto reply = std::async(std::launch::async, [&] { return submit(1, 10, "a"); });
  wait_for_reads("a", 2);
  ASSERT_TRUE(ask<CancelReply>(shared_.router, CancelRequest{sink_, 1}).found);
  EXPECT_TRUE(reply.get());
  ASSERT_TRUE(received_->wait_for(1));
  unblock();
  EXPECT_TRUE(comes_true([&] { return std::ranges::count(loaded(), "a") == 1; }));
  EXPECT_EQ(num_requests_of("a"), 0);
  EXPECT_TRUE(remove("a"));
}

TEST_F(Adapters, OthersRunWhileAnAdapterLoads) {
  add_all({"a", "b", "c"});
  block("a");
  auto reply = std::async(std::launch::async, [&] { return submit(1, 10, "a"); });
  wait_for_reads("a", 2);
  ASSERT_TRUE(submit(2, 20, "c"));
  ASSERT_TRUE(submit(3, 20));
  ASSERT_TRUE(received_->wait_for(2));
  expect_right(2, 20);
  expect_right(3, 20);
  unblock();
  ASSERT_TRUE(reply.get());
  ASSERT_TRUE(received_->wait_for(3));
  expect_right(1, 10);
}

TEST_F(Adapters, ARemovalIsAnsweredWhenTheRequestsOfTheAdapterHaveEnded) {
  add_all({"a"});
  runners_->step_us = 1000;
  ASSERT_TRUE(submit(1, 150, "a"));
  auto removal = std::async(std::launch::async, [&] { return remove("a"); });
  ASSERT_TRUE(comes_true([&] { return list().empty(); }));
  EXPECT_EQ(removal.wait_for(0s), std::future_status::timeout);
  const auto refused = submit(2, 10, "a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unknown_adapter);
  EXPECT_TRUE(removal.get());
  ASSERT_TRUE(received_->wait_for(1));
  expect_right(1, 150);
  const Status unknown = remove("a");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::unknown_adapter);
  EXPECT_EQ(unknown.error().param, "lora_name");
  ASSERT_TRUE(add("a"));
  ASSERT_TRUE(submit(3, 10, "a"));
  ASSERT_TRUE(received_->wait_for(2));
  EXPECT_EQ(runners_->adapters.size(), 2U) << "an adapter that is added again has another id";
}

TEST_F(Adapters, AWorkerThatDiesTakesNoAdapterFromTheRequests) {
  add_all({"a", "b"});
  runners_->step_us = 500;
  ASSERT_TRUE(submit(1, 100, "a"));
  ASSERT_TRUE(submit(2, 100, "b"));
  ASSERT_TRUE(has_tokens());
  caf::anon_send_exit(replica().devices.workers.at(0), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(2));
  expect_right(1, 100);
  expect_right(2, 100);
  EXPECT_THAT(adapters_of_rows(), ElementsAre("a", "b"));
}

TEST_F(Adapters, TheEngineEndsWithTheStore) {
  add_all({"a", "b", "c"});
  runners_->step_us = 2000;
  ASSERT_TRUE(submit(1, 150, "c"));
  block("a");
  auto waits = std::async(std::launch::async, [&] { return submit(2, 10, "a"); });
  wait_for_reads("a", 2);
  caf::anon_send_exit(shared_.adapter_store, caf::exit_reason::kill);
  EXPECT_FALSE(waits.get());
  ASSERT_TRUE(received_->wait_for(1));
  EXPECT_TRUE(received_->ends.at(1).error);
  unblock();
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  EXPECT_FALSE(submit(3, 10, "c"));
  EXPECT_FALSE(add("d"));
  EXPECT_TRUE(list().empty());
}

TEST_F(Adapters, ALoadGoesOnAtTheWorkerThatReplacesADeadOne) {
  for (const bool is_broken : {true, false}) {
    const std::string name = is_broken ? "broken" : "sound";
    block(name);
    set_broken(name, is_broken);
    auto added = std::async(std::launch::async, [&] { return add(name); });
    wait_for_reads(name, 1);
    caf::anon_send_exit(replica(0).devices.workers.at(0), caf::exit_reason::kill);
    wait_for_reads(name, 2);
    unblock();
    const Status status = added.get();
    EXPECT_EQ(status.has_value(), !is_broken) << "the answer is that of a real load";
  }
  ASSERT_TRUE(submit(1, 20, "sound"));
  ASSERT_TRUE(received_->wait_for(1));
  expect_right(1, 20);
}

TEST_F(Adapters, ALoadWithWhichWorkersDieEachTimeFails) {
  block("a");
  auto added = std::async(std::launch::async, [&] { return add("a"); });
  for (const int count : {1, 2}) {
    wait_for_reads("a", count);
    caf::anon_send_exit(replica(0).devices.workers.at(0), caf::exit_reason::kill);
  }
  const Status status = added.get();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::bad_adapter);
  EXPECT_THAT(status.error().message, HasSubstr("workers crash while they load it"));
  EXPECT_EQ(num_reads("a"), 2);
  unblock();
  EXPECT_TRUE(add("b"));
}

class AdaptersOfTwoReplicas : public Adapters {
 protected:
  AdaptersOfTwoReplicas() : Adapters(2) {}
};

TEST_F(AdaptersOfTwoReplicas, EachReplicaLoadsAndOneIsEnough) {
  add_all({"a", "b"});
  EXPECT_EQ(num_reads("a"), 2);
  runners_->step_us = 500;
  for (std::uint64_t tag = 1; tag <= 6; ++tag) ASSERT_TRUE(submit(tag, 100, tag % 2 == 0 ? "a" : "b"));
  ASSERT_TRUE(has_tokens());
  no_more_workers_.at(0) = true;
  caf::anon_send_exit(replica(0).devices.workers.at(0), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(6));
  for (std::uint64_t tag = 1; tag <= 6; ++tag) expect_right(tag, 100);
  EXPECT_THAT(adapters_of_rows(), ElementsAre("a", "b"));
  ASSERT_TRUE(comes_true([&] { return ask<EngineStats>(shared_.router, GetStats{}).replicas.at(0).state == "down"; }));
  EXPECT_TRUE(comes_true([&] { return num_requests_of("a") == 0 && num_requests_of("b") == 0; }));
  EXPECT_TRUE(add("c")) << "the replica that is down loads nothing";
  ASSERT_TRUE(submit(7, 20, "c"));
  ASSERT_TRUE(received_->wait_for(7));
  expect_right(7, 20);
}

TEST_F(AdaptersOfTwoReplicas, OneThatStartsAgainLoadsThemBeforeItTakesRequests) {
  add_all({"a", "b"});
  ASSERT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status);
  block("b");
  auto started =
      std::async(std::launch::async, [&] { return ask<ReplicaStarted>(shared_.router, StartReplica{0}).status; });
  wait_for_reads("b", 3);
  EXPECT_EQ(ask<EngineStats>(shared_.router, GetStats{}).replicas.at(0).state, "starting");
  ASSERT_TRUE(submit(1, 20, "b")) << "the other replica serves it";
  ASSERT_TRUE(received_->wait_for(1));
  unblock();
  EXPECT_TRUE(started.get());
  EXPECT_EQ(num_reads("a"), 3);
  ASSERT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{1}).status);
  for (std::uint64_t tag = 2; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 20, tag % 2 == 0 ? "a" : "b"));
  ASSERT_TRUE(received_->wait_for(5));
  for (std::uint64_t tag = 1; tag <= 5; ++tag) expect_right(tag, 20);
  EXPECT_EQ(num_reads("a"), 3) << "no row had to wait for it";
}

class AdaptersOfTwoProcesses : public Adapters {
 protected:
  AdaptersOfTwoProcesses() : Adapters(2, Devices::processes) {}
};

TEST_F(AdaptersOfTwoProcesses, OneThatFailsWhileItStartsIsDownAndMayStartOnceMore) {
  add_all({"a"});
  ASSERT_TRUE(submit(1, 20, "a"));
  ASSERT_TRUE(received_->wait_for(1));
  ASSERT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status);
  block("a");
  auto started =
      std::async(std::launch::async, [&] { return ask<ReplicaStarted>(shared_.router, StartReplica{0}).status; });
  wait_for_reads("a", 3);
  no_more_workers_.at(0) = true;
  const auto replica = ask<EngineStats>(shared_.router, GetStats{}).replicas.at(0);
  EXPECT_EQ(replica.state, "starting");
  send_anonymously(caf::actor_cast<DeviceKeeperActor>(last_process_.at(0)),
                   DeviceFailed{{ErrorCode::device_failed, "it was killed"}, false, true, ProcessEnd::died});
  EXPECT_FALSE(started.get());
  unblock();
  EXPECT_EQ(ask<EngineStats>(shared_.router, GetStats{}).replicas.at(0).state, "down");
  no_more_workers_.at(0) = false;
  EXPECT_TRUE(
      comes_true([&] { return static_cast<bool>(ask<ReplicaStarted>(shared_.router, StartReplica{0}).status); }));
  EXPECT_EQ(ask<EngineStats>(shared_.router, GetStats{}).requests_finished_total, 1);
  ASSERT_TRUE(submit(2, 20, "a"));
  ASSERT_TRUE(received_->wait_for(2));
  expect_right(2, 20);
}

TEST_F(AdaptersOfTwoProcesses, TheEngineFailsWithTheLastOneThoughAnotherStarts) {
  add_all({"a"});
  ASSERT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status);
  block("a");
  EXPECT_TRUE(ask<ReplicaStarted>(shared_.router, StartReplica{0, false}).status);
  wait_for_reads("a", 3);
  runners_->step_us = 1000;
  ASSERT_TRUE(submit(1, 150));
  no_more_workers_.at(1) = true;
  send_anonymously(caf::actor_cast<DeviceKeeperActor>(last_process_.at(1)),
                   DeviceFailed{{ErrorCode::device_failed, "it was killed"}, false, true, ProcessEnd::died});
  ASSERT_TRUE(received_->wait_for(1)) << "no request is left without an answer";
  unblock();
  EXPECT_FALSE(submit(2, 5));
}

TEST_F(EngineOfFakes, WithoutAdaptersRefusesThemAndListsNone) {
  const auto refused = submit(1, 5, "sql");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unknown_adapter);
  const Status add = ask<AdapterReply>(shared_.router, AddAdapter{"sql", "/sql"}).status;
  ASSERT_FALSE(add);
  EXPECT_EQ(add.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(add.error().param, "lora_name");
  const Status remove = ask<AdapterReply>(shared_.router, RemoveAdapter{"sql"}).status;
  ASSERT_FALSE(remove);
  EXPECT_EQ(remove.error().code, ErrorCode::unknown_adapter) << "the contract of RemoveAdapter";
  EXPECT_TRUE(ask<AdapterList>(shared_.router, ListAdapters{}).adapters.empty());
  EXPECT_FALSE(ask<metrics::EngineMetrics>(shared_.router, GetMetrics{}).adapters);
}

}  // namespace
}  // namespace pagoda::actors
