// Tests all actors of an engine over a fake device, without a model: their behaviour when others die, drain or fail.

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "actors/device_failure.hpp"
#include "actors/engine_actors.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/device.hpp"
#include "tests/support/fake_runner.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::actors {
namespace {

using namespace std::chrono_literals;

constexpr std::int32_t kBlockSize = 4;
constexpr std::int32_t kDeviceBlocks = 60;
constexpr std::int32_t kHostBlocks = 100;

/// The outputs that a sink actor has received.
struct ReceivedEnds {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, RequestOutput> ends;
  std::map<std::uint64_t, int> num_ends;

  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 60s, [&] { return ends.size() >= count; });
  }
};

SinkActor::behavior_type recording_sink(SinkActor::pointer, const std::shared_ptr<ReceivedEnds>& received) {
  return {[received](const OutputBatch& batch) {
    happens_before::received();
    const std::lock_guard lock(received->mutex);
    for (const RequestOutput& output : batch.outputs) {
      if (!output.done && !output.error) continue;
      received->ends[output.tag] = output;
      ++received->num_ends[output.tag];
    }
    received->changed.notify_all();
  }};
}

/// Represents a worker process: ends when it is sent its failure, together with the actors inside it.
struct FakeProcess {
  FakeProcess() {}
  ~FakeProcess() {
    end_now(worker);
    end_now(cache_engine);
  }

  WorkerActor worker;
  CacheEngineActor cache_engine;
  caf::actor_addr supervisor;
};

DeviceProcessActor::behavior_type fake_process(DeviceProcessActor::stateful_pointer<FakeProcess> self,
                                               const WorkerActor& worker, const CacheEngineActor& cache_engine) {
  state_of(self).worker = worker;
  state_of(self).cache_engine = cache_engine;
  return {
      [self](ExecuteStep& step) { send(self, state_of(self).worker, std::move(step)); },
      [](const StepMasks&) {},
      [](const CacheReady&) {},
      [](const CacheConnected&) {},
      [self](const ConnectScheduler& connect) {
        auto& state = state_of(self);
        state.supervisor = connect.supervisor;
        send(self, state.worker, connect);
        send(self, state.cache_engine, ConnectWorker{state.worker, connect.scheduler, connect.supervisor});
      },
      [self](CachePlan& plan) { send(self, state_of(self).cache_engine, std::move(plan)); },
      [](const StepEnqueued&) {},
      [](const ConnectCache&) {},
      [](const ConnectWorker&) {},
      [self](const DeviceFailed& failed) { end_with(self, state_of(self).supervisor, failed); },
  };
}

class EngineOfFakes : public ::testing::Test {
 protected:
  enum class Devices : std::uint8_t { here, processes };

  explicit EngineOfFakes(Devices devices = Devices::here) {
#ifdef CAF_VERSION_MAJOR
    caf::init_global_meta_objects<caf::id_block::pagoda>();
    caf::core::init_global_meta_objects();
#endif
    configure_pool(config_, 2);
    system_ = std::make_unique<caf::actor_system>(config_);
    execution::KvPools pools;
    if (devices == Devices::processes) pools.progress = device_->allocate(sizeof(execution::PlanProgress), {}).value();
    progress_ = pools.progress.as<execution::PlanProgress>();
    memory_ = execution::KvMemory::create(device_, kBlockSize * sizeof(test::Mark), kDeviceBlocks, kHostBlocks,
                                          std::move(pools))
                  .value();
    tokenizer_ = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories").value();
    DeviceFactory factory{[this] { return make_worker(); }, [this] { return make_cache_engine(); }};
    shared_.tokenizer = spawn_tokenizer(*system_, tokenizer_);
    const Grammars grammars =
        spawn_grammar_compiler(*system_, tokenizer_, {.vocab_size = test::kFakeVocab, .eos_token_ids = {}});
    shared_.grammar_compiler = grammars.compiler;
    shared_.outputs = spawn_output_processor(*system_, tokenizer_, instruments_);
    if (devices == Devices::processes) {
      factory.start_process = [this](caf::actor_system&, bool memory_lost) { return start_process(memory_lost); };
      factory.plans_done = [this] { return progress_->last_plan(); };
    }
    replica_.devices = spawn_devices(*system_, {factory}, instruments_).value().actors;
    replica_.block_manager = spawn_block_manager(
        *system_,
        {.layout = KvLayout::uniform(kBlockSize), .num_device_blocks = kDeviceBlocks, .num_host_blocks = kHostBlocks},
        replica_.devices.cache_engines, instruments_, factory.plans_done);
    scheduling::SchedulerConfig scheduler;
    scheduler.max_num_seqs = 16;
    scheduler.max_num_batched_tokens = 64;
    scheduler.can_swap = true;
    scheduler.preemption = PreemptionPolicy::swap;
    replica_.scheduler = spawn_scheduler(*system_, scheduler, replica_.block_manager, replica_.devices.workers,
                                         shared_.outputs, instruments_);
    routing::AdmissionLimits limits;
    limits.vocab_size = test::kFakeVocab;
    limits.max_model_len = limits.max_kv_tokens = 200;
    limits.max_num_seqs = 16;
    limits.max_queued_requests = 100;
    limits.max_queued_prompt_tokens = 10'000;
    shared_.router = spawn_request_router(*system_, limits, ModelInfo{}, shared_.tokenizer, grammars,
                                          {replica_.scheduler}, shared_.outputs, instruments_);
    replica_supervisor_ =
        spawn_replica_supervisor(*system_, std::make_shared<Replica>(replica_), {std::move(factory)}, instruments_);
    supervisor_ = spawn_supervisor(*system_, shared_, replica_supervisor_);
    sink_ = system_->spawn(recording_sink, received_);
  }

  ~EngineOfFakes() override {
    caf::scoped_actor self{*system_};
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    self->wait_for(supervisor_, replica_supervisor_);
    caf::anon_send_exit(shared_.router, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(sink_, caf::exit_reason::user_shutdown);
    shared_ = {};
    replica_ = {};
    sink_ = nullptr;
    self->await_all_other_actors_done();
    const std::lock_guard lock(runners_->mutex);
    EXPECT_EQ(runners_->errors, std::vector<std::string>{});
    expect_replay();
  }

  /// Checks that the cores replay to the same decisions, from the whole journal and from its last segments alone.
  void expect_replay() const {
    const std::size_t num_segments = journal_->segments().size();
    for (const std::size_t first : {std::size_t{0}, num_segments / 2, num_segments - 1}) {
      const auto report = journal_->replay(first, tokenizer_);
      for (const auto& difference : report.differences) {
        ADD_FAILURE() << "segment " << difference.segment << ", record " << difference.record << ": "
                      << journal::to_string(difference.core) << ' ' << difference.what;
      }
    }
  }

  Result<WorkerParts> make_worker() {
    if (no_more_workers_) return fail(ErrorCode::out_of_memory, "no memory for another runner");
    auto stream = device_->create_stream("fake-step");
    return WorkerParts{std::make_shared<test::FakeRunner>(memory_, runners_), std::move(*stream)};
  }
  Result<CacheParts> make_cache_engine() {
    auto stream = device_->create_stream("fake-copy");
    return CacheParts{memory_, std::move(*stream)};
  }

  template <class Handle>
  static std::future<void> end_of(const Handle& actor) {
    const auto ended = std::make_shared<std::promise<void>>();
    when_ended(actor, [ended] { ended->set_value(); });
    return ended->get_future();
  }

  /// Starts a process when all actors of the process before it have ended, as a supervisor waits for.
  Result<DeviceProcess> start_process(bool memory_lost) {
    for (const auto& end : inside_) end.wait();
    inside_.clear();
    if (memory_lost) {
      std::memset(memory_->device_base(), 0xee, static_cast<std::size_t>(memory_->block_bytes() * kDeviceBlocks));
      ++times_lost_;
    }
    const CacheEngineActor cache_engine = spawn_cache_engine(*system_, make_cache_engine().value(), instruments_);
    const WorkerActor worker = spawn_worker(*system_, make_worker().value(), cache_engine, instruments_);
    inside_.push_back(end_of(cache_engine));
    inside_.push_back(end_of(worker));
    return DeviceProcess{system_->spawn(fake_process, worker, cache_engine), ++last_pid_, 0, memory_lost};
  }

  template <class Answer, class Handle, class Message>
  Answer ask(const Handle& whom, const Message& message) {
    caf::scoped_actor self{*system_};
    Answer answer{};
    actors::ask(self, whom, message, [&](Answer& a) { answer = std::move(a); });
    return answer;
  }

  static GenerateRequest request(std::uint64_t tag, std::int64_t max_tokens) {
    GenerateRequest request;
    std::vector<std::int64_t> prompt;
    for (std::uint64_t i = 0; i < 5 + tag % 20; ++i)
      prompt.push_back(static_cast<std::int64_t>((tag % 3 * 100 + i) % 900));
    request.prompt_token_ids = prompt;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.seed = tag;
    request.sampling.n = tag % 4 == 1 ? 2 : 1;
    return request;
  }
  Result<RequestId> submit(std::uint64_t tag, std::int64_t max_tokens) {
    const auto shared = std::make_shared<const GenerateRequest>(request(tag, max_tokens));
    return ask<SubmitReply>(shared_.router, SubmitRequest{shared, sink_, tag}).ticket;
  }
  /// Returns the tokens that the fake model gives, independent of the fate of the actors.
  static std::vector<TokenIds> right_tokens(std::uint64_t tag, std::int64_t max_tokens) {
    const GenerateRequest asked = request(tag, max_tokens);
    std::vector<TokenIds> all;
    for (std::int32_t index = 0; index < asked.sampling.n; ++index) {
      TokenIds tokens(asked.prompt_token_ids->begin(), asked.prompt_token_ids->end());
      TokenIds& output = all.emplace_back();
      while (std::ssize(output) < max_tokens) {
        output.push_back(test::fake_token(tag, index, tokens));
        tokens.push_back(output.back());
      }
    }
    return all;
  }
  void expect_right(std::uint64_t tag, std::int64_t max_tokens) {
    const std::lock_guard lock(received_->mutex);
    const RequestOutput& end = received_->ends.at(tag);
    EXPECT_EQ(received_->num_ends.at(tag), 1);
    ASSERT_FALSE(end.error) << end.error->message;
    std::vector<TokenIds> tokens;
    for (const SequenceResult& sequence : end.done->outputs) tokens.push_back(sequence.token_ids);
    EXPECT_EQ(tokens, right_tokens(tag, max_tokens)) << "request " << tag;
  }

  /// Returns the sum over all requests that have ended with a result.
  std::int64_t sum_of(std::int64_t Timing::*member) const {
    const std::lock_guard lock(received_->mutex);
    std::int64_t sum = 0;
    for (const auto& [tag, end] : received_->ends) sum += end.done ? end.done->timing.*member : 0;
    return sum;
  }

  Replica replica() {
    return ask<Replica>(replica_supervisor_, GetReplica{});
  }

  std::shared_ptr<test::MemoryJournal> journal_ = std::make_shared<test::MemoryJournal>(500);
  Instruments instruments_{nullptr, journal_};
  caf::actor_system_config config_;
  std::shared_ptr<kernels::Device> device_ = kernels::create_cpu_device({1, "", "none"}).value();
  std::shared_ptr<execution::KvMemory> memory_;
  execution::PlanProgress* progress_ = nullptr;
  std::vector<std::future<void>> inside_;  ///< ends of the process's actors
  std::int64_t last_pid_ = 0;
  std::atomic<int> times_lost_ = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<test::FakeRunners> runners_ = std::make_shared<test::FakeRunners>();
  std::atomic<bool> no_more_workers_ = false;
  std::shared_ptr<ReceivedEnds> received_ = std::make_shared<ReceivedEnds>();
  // Declared after the fields that the actors use, because its destructor waits for the actors.
  std::unique_ptr<caf::actor_system> system_;
  SharedActors shared_;
  Replica replica_;
  ReplicaSupervisorActor replica_supervisor_;
  caf::actor supervisor_;
  SinkActor sink_;
};

TEST_F(EngineOfFakes, ServesMoreThanItsMemoryHoldsBySwapping) {
  constexpr std::int64_t kTokens = 60;
  for (std::uint64_t tag = 1; tag <= 12; ++tag) ASSERT_TRUE(submit(tag, kTokens));
  ASSERT_TRUE(received_->wait_for(12));
  for (std::uint64_t tag = 1; tag <= 12; ++tag) expect_right(tag, kTokens);
  const auto stats = ask<EngineStats>(shared_.router, GetStats{});
  EXPECT_GT(stats.preemptions_swap_total, 0);
  // Sequences of one request that are preempted together count as one preemption of the request.
  EXPECT_GT(sum_of(&Timing::preemptions), 0);
  EXPECT_LE(sum_of(&Timing::preemptions), stats.preemptions_swap_total + stats.preemptions_recompute_total);
  EXPECT_EQ(sum_of(&Timing::restarts), 0);
}

TEST_F(EngineOfFakes, WorkersAndCacheEnginesMayDieAtAnyTimeAndNoTokenChanges) {
  constexpr std::int64_t kTokens = 60;
  std::mt19937_64 random(5);
  std::uint64_t tag = 0;
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 20;  // each takes seconds
#else
  constexpr int kRounds = 120;
#endif
  int killed_at_work = 0;
  runners_->step_us = 50;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = tag + 1;
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(++tag, kTokens));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    {
      const std::lock_guard lock(received_->mutex);
      killed_at_work += received_->ends.size() < tag ? 1 : 0;
    }
    // Kills one actor in each round: rows of the round before may cost a request a second device, but not more.
    const Replica now = replica();
    if (random() % 2 == 0) {
      caf::anon_send_exit(now.devices.workers.front(), caf::exit_reason::kill);
    } else {
      caf::anon_send_exit(now.devices.cache_engines.front(), caf::exit_reason::kill);
    }
    ASSERT_TRUE(received_->wait_for(tag)) << "round " << round;
    for (std::uint64_t one = first; one <= tag; ++one) expect_right(one, kTokens);
  }
  EXPECT_GT(ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total, kRounds / 2);
  EXPECT_GT(killed_at_work, kRounds / 2);
  EXPECT_GT(sum_of(&Timing::restarts), kRounds / 2);
}

class EngineOfFakeProcesses : public EngineOfFakes {
 protected:
  EngineOfFakeProcesses() : EngineOfFakes(Devices::processes) {}

  std::int64_t num_recomputed() {
    return ask<metrics::EngineMetrics>(shared_.router, GetMetrics{}).steps.recomputed_tokens;
  }
  void fail_process(bool memory_lost, bool without_progress = false) {
    const auto process = caf::actor_cast<DeviceKeeperActor>(replica().devices.workers.front());
    send_anonymously(
        process,
        DeviceFailed{{ErrorCode::device_failed, "it was killed"}, without_progress, memory_lost, ProcessEnd::died});
  }
};

TEST_F(EngineOfFakeProcesses, MemoryThatOutlivesThemIsGoneOnWithAndNoTokenChanges) {
  constexpr std::int64_t kTokens = 60;
  std::mt19937_64 random(6);
  std::uint64_t tag = 0;
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 20;  // each takes seconds
#else
  constexpr int kRounds = 120;
#endif
  runners_->step_us = 50;
  int lost = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = tag + 1;
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(++tag, kTokens));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    const bool memory_lost = random() % 4 == 0;
    lost += memory_lost ? 1 : 0;
    fail_process(memory_lost);
    ASSERT_TRUE(received_->wait_for(tag)) << "round " << round;
    for (std::uint64_t one = first; one <= tag; ++one) expect_right(one, kTokens);
  }
  EXPECT_EQ(times_lost_, lost);
  const auto stats = ask<EngineStats>(shared_.router, GetStats{});
  EXPECT_EQ(stats.worker_restarts_total, kRounds);
  EXPECT_GT(stats.preemptions_swap_total, kRounds) << "plans must be under way where processes die";
}

TEST_F(EngineOfFakeProcesses, OnlyWhatIsInNoFullBlockIsComputedAgain) {
  runners_->step_us = 500;
  for (std::uint64_t tag = 4; tag <= 12; tag += 4) ASSERT_TRUE(submit(tag, 80));  // with one sequence each
  const auto wait_for_tokens = [&](std::int64_t count) {
    while (ask<EngineStats>(shared_.router, GetStats{}).generation_tokens_total < count) {
      std::this_thread::sleep_for(1ms);
    }
  };
  wait_for_tokens(100);
  fail_process(false);
  ASSERT_TRUE(received_->wait_for(3));
  for (std::uint64_t tag = 4; tag <= 12; tag += 4) expect_right(tag, 80);
  EXPECT_LE(num_recomputed(), 3 * (kBlockSize + 2)) << "a block and what was in flight, for each";
}

// A client may send a request that kills workers as often as it likes.
TEST_F(EngineOfFakeProcesses, TheEngineOutlivesAnyNumberOfThemThatDoNothing) {
  constexpr int kDeaths = 15;
  for (int deaths = 1; deaths <= kDeaths; ++deaths) {
    fail_process(false, true);
    while (ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total < deaths)
      std::this_thread::sleep_for(1ms);
  }
  ASSERT_TRUE(submit(1, 20));
  ASSERT_TRUE(received_->wait_for(1));
  expect_right(1, 20);
}

TEST_F(EngineOfFakeProcesses, OneThatEndsWithoutAWordLeavesMemoryThatNobodyTrusts) {
  runners_->step_us = 500;
  for (std::uint64_t tag = 1; tag <= 8; ++tag) ASSERT_TRUE(submit(tag, 80));
  caf::anon_send_exit(replica().devices.workers.front(), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(8));
  for (std::uint64_t tag = 1; tag <= 8; ++tag) expect_right(tag, 80);
  EXPECT_EQ(times_lost_, 1);
}

TEST_F(EngineOfFakes, ADrainEndsWhatIsLiveAndRefusesWhatComes) {
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 40));
  EXPECT_EQ(ask<Drained>(shared_.router, Drain{60'000}).aborted, 0);
  ASSERT_TRUE(received_->wait_for(5));
  for (std::uint64_t tag = 1; tag <= 5; ++tag) expect_right(tag, 40);
  const auto refused = submit(9, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::shutting_down);
}

TEST_F(EngineOfFakes, ADrainWaitsForAWorkerThatIsReplacedUnderIt) {
  runners_->step_us = 1000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 100));
  caf::anon_send_exit(replica_.devices.workers.front(), caf::exit_reason::kill);
  EXPECT_EQ(ask<Drained>(shared_.router, Drain{60'000}).aborted, 0);
  ASSERT_TRUE(received_->wait_for(5));
  for (std::uint64_t tag = 1; tag <= 5; ++tag) expect_right(tag, 100);
  EXPECT_EQ(ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total, 1);
}

TEST_F(EngineOfFakes, WhenTheBlockManagerDiesWhoeverWaitsIsTold) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  caf::anon_send_exit(replica_.block_manager, caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(5));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  int num_errors = 0;
  for (const auto& [tag, end] : received_->ends) num_errors += end.error ? 1 : 0;
  EXPECT_GT(num_errors, 0);
  const auto refused = submit(9, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "an actor of the engine has ended");
}

TEST_F(EngineOfFakes, WhenTheOutputProcessorDiesRequestsOnTheirWayToItAreToldToo) {
  runners_->step_us = 2000;
  std::size_t num_taken = 0;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) num_taken += submit(tag, 150) ? 1 : 0;
  caf::anon_send_exit(shared_.outputs, caf::exit_reason::kill);
  for (std::uint64_t tag = 6; tag <= 30; ++tag) num_taken += submit(tag, 150) ? 1 : 0;
  ASSERT_TRUE(received_->wait_for(num_taken));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  for (const auto& [tag, end] : received_->ends) {
    EXPECT_EQ(received_->num_ends.at(tag), 1);
    EXPECT_TRUE(end.error) << "request " << tag;
  }
  const auto refused = submit(31, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "an actor of the engine has ended");
}

TEST_F(EngineOfFakes, AWorkerThatCannotBeReplacedEndsTheEngineWithItsReason) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  no_more_workers_ = true;
  caf::anon_send_exit(replica_.devices.workers.front(), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(5));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  const std::string health = ask<EngineStats>(shared_.router, GetStats{}).health;
  EXPECT_NE(health.find("no memory for another runner"), std::string::npos) << health;
}

TEST_F(EngineOfFakes, AnExitEndsEveryActorAndTellsEveryRequest) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  const Replica now = replica();
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_, replica_supervisor_, shared_.router, shared_.tokenizer, shared_.outputs, now.scheduler,
                 now.block_manager, now.devices.workers.front(), now.devices.cache_engines.front());
  ASSERT_TRUE(received_->wait_for(5));
  for (const auto& [tag, count] : received_->num_ends) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace pagoda::actors
