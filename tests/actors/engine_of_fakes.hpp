#pragma once

/// A test fixture: all actors of an engine over fake devices, without a model.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "actors/device_failure.hpp"
#include "actors/engine_parts.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/device.hpp"
#include "tests/support/fake_runner.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::actors::fakes {

using namespace std::chrono_literals;

inline constexpr std::int32_t kBlockSize = 4;
inline constexpr std::int32_t kDeviceBlocks = 60;
inline constexpr std::int32_t kHostBlocks = 100;

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

inline SinkActor::behavior_type recording_sink(SinkActor::pointer, const std::shared_ptr<ReceivedEnds>& received) {
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

/// Files of adapters of one linear layer, by their paths.
struct FakeAdapterFiles {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, int> num_reads;
  std::set<std::string> broken;   ///< paths that cannot be read
  std::set<std::string> blocked;  ///< paths whose reading waits until they are not in here any more

  Result<adapters::Adapter> read(const std::string& path) {
    std::unique_lock lock(mutex);
    ++num_reads[path];
    changed.notify_all();
    changed.wait(lock, [&] { return !blocked.contains(path); });
    if (broken.contains(path)) return fail(ErrorCode::bad_file, path + " is broken");
    const auto matrix = [](std::int64_t rows, std::int64_t columns) {
      const std::vector<std::byte> zeros(static_cast<std::size_t>(rows * columns) * sizeof(float));
      return adapters::AdapterMatrix{DType::f32, rows, columns, zeros};
    };
    adapters::Adapter adapter;
    adapter.changes.push_back({"layer", adapters::LoraChange{matrix(1, 8), matrix(4, 1), 1.0F, {}}, {}, {}});
    return adapter;
  }
};

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

inline DeviceProcessActor::behavior_type fake_process(DeviceProcessActor::stateful_pointer<FakeProcess> self,
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
      [self](const LoadAdapter& message) {
        auto promise = self->make_response_promise<AdapterLoaded>();
        request(
            self, state_of(self).worker, message,
            [promise](AdapterLoaded& loaded) mutable { deliver(promise, std::move(loaded)); },
            [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
        return promise;
      },
      [self](const UnloadAdapter& message) { send(self, state_of(self).worker, message); },
      [](const AdapterLoaded&) {},
      [self](CachePlan& plan) { send(self, state_of(self).cache_engine, std::move(plan)); },
      [](const StepEnqueued&) {},
      [](const ConnectCache&) {},
      [](const ConnectWorker&) {},
      [self](const DeviceFailed& failed) { end_with(self, state_of(self).supervisor, failed); },
  };
}

/// All actors of an engine, over fake devices with memory of their own. A request has the same tokens in an engine of
/// any number of replicas and ranks.
class EngineOfFakes : public ::testing::Test {
 protected:
  enum class Devices : std::uint8_t { here, processes };
  struct Shape {
    Devices devices = Devices::here;
    std::int32_t num_replicas = 1;
    std::int32_t num_ranks = 1;
    /// Maximum number of loaded adapters, and of different ones in a step; 0 = requests cannot name adapters.
    std::int32_t max_adapters = 0;
  };

  EngineOfFakes() : EngineOfFakes(Shape()) {}
  explicit EngineOfFakes(Shape shape) {
#ifdef CAF_VERSION_MAJOR
    caf::init_global_meta_objects<caf::id_block::pagoda>();
    caf::core::init_global_meta_objects();
#endif
    configure_pool(config_, 2);
    system_ = std::make_unique<caf::actor_system>(config_);
    tokenizer_ = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories").value();
    EngineParts parts;
    parts.tokenizer = tokenizer_;
    parts.grammars.vocab_size = test::kFakeVocab;
    parts.limits.vocab_size = test::kFakeVocab;
    parts.limits.max_model_len = parts.limits.max_kv_tokens = 200;
    parts.limits.max_num_seqs = 16;
    parts.limits.max_queued_requests = 100;
    parts.limits.max_queued_prompt_tokens = 10'000;
    parts.instruments = instruments_;
    has_adapters_ = shape.max_adapters > 0;
    modules_.add({.name = "layer", .in_features = 8, .out_features = 4, .row_width = 4});
    if (has_adapters_) {
      const auto max_loaded = static_cast<std::size_t>(shape.max_adapters);
      parts.adapters = AdapterStoreParts{.max_loaded = max_loaded, .max_in_step = shape.max_adapters};
    }
    for (ReplicaId replica = 0; replica < shape.num_replicas; ++replica) {
      ReplicaParts& its = parts.replicas.emplace_back();
      its.scheduler.max_num_seqs = 16;
      its.scheduler.max_num_batched_tokens = 64;
      its.scheduler.can_swap = true;
      its.scheduler.max_adapters = shape.max_adapters;
      its.scheduler.preemption = PreemptionPolicy::swap;
      its.blocks = {
          .layout = KvLayout::uniform(kBlockSize), .num_device_blocks = kDeviceBlocks, .num_host_blocks = kHostBlocks};
      its.ranks = make_ranks(replica, shape);
    }
    parts.make_ranks = [this, shape](ReplicaId replica) -> Result<std::vector<DeviceFactory>> {
      if (no_more_workers_.at(static_cast<std::size_t>(replica))) return fail(ErrorCode::out_of_memory, "no memory");
      return make_ranks(replica, shape);
    };
    running_ = spawn_actors(*system_, std::move(parts)).value();
    shared_ = running_.actors;
    replica_ = running_.replicas.at(0).actors;
    supervisor_ = running_.supervisor;
    sink_ = system_->spawn(recording_sink, received_);
  }

  ~EngineOfFakes() override {
    caf::scoped_actor self{*system_};
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    self->wait_for(supervisor_);
    for (const RunningReplica& replica : running_.replicas) self->wait_for(replica.supervisor);
    caf::anon_send_exit(shared_.router, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(sink_, caf::exit_reason::user_shutdown);
    shared_ = {};
    replica_ = {};
    running_ = {};
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

  /// The memory of one device, and what its process keeps.
  struct FakeRank {
    Place place;
    std::shared_ptr<execution::KvMemory> memory;
    execution::PlanProgress* progress = nullptr;
    std::vector<std::future<void>> inside;  ///< ends of the process's actors
  };

  std::vector<DeviceFactory> make_ranks(ReplicaId replica, const Shape& shape) {
    std::vector<DeviceFactory> ranks;
    for (RankId rank = 0; rank < shape.num_ranks; ++rank) ranks.push_back(make_rank({replica, rank}, shape.devices));
    return ranks;
  }
  DeviceFactory make_rank(Place place, Devices devices) {
    const auto rank = std::make_shared<FakeRank>();
    ranks_.push_back(rank);
    rank->place = place;
    execution::KvPools pools;
    if (devices == Devices::processes) pools.progress = device_->allocate(sizeof(execution::PlanProgress), {}).value();
    rank->progress = pools.progress.as<execution::PlanProgress>();
    rank->memory = execution::KvMemory::create(device_, kBlockSize * sizeof(test::Mark), kDeviceBlocks, kHostBlocks,
                                               std::move(pools))
                       .value();
    DeviceFactory factory{[this, rank] { return make_worker(*rank); },
                          [this, rank] { return make_cache_engine(*rank); }};
    if (devices == Devices::processes) {
      factory.start_process = [this, rank](caf::actor_system&, bool lost) { return start_process(*rank, lost); };
      factory.plans_done = [rank] { return rank->progress->last_plan(); };
    }
    return factory;
  }
  Result<WorkerParts> make_worker(const FakeRank& rank) {
    if (no_more_workers_.at(static_cast<std::size_t>(rank.place.replica))) {
      return fail(ErrorCode::out_of_memory, "no memory for another runner");
    }
    auto stream = device_->create_stream("fake-step");
    WorkerParts parts{std::make_shared<test::FakeRunner>(rank.memory, runners_, rank.place.rank), std::move(*stream)};
    if (has_adapters_) {
      const auto read = [files = adapter_files_](const std::string& path) { return files->read(path); };
      parts.adapters = std::make_shared<adapters::AdapterTable>(read, modules_, *device_);
    }
    return parts;
  }
  Result<CacheParts> make_cache_engine(const FakeRank& rank) {
    auto stream = device_->create_stream("fake-copy");
    return CacheParts{rank.memory, std::move(*stream)};
  }

  template <class Handle>
  static std::future<void> end_of(const Handle& actor) {
    const auto ended = std::make_shared<std::promise<void>>();
    when_ended(actor, [ended] { ended->set_value(); });
    return ended->get_future();
  }

  /// Starts a process when all actors of the process before it have ended, as a supervisor waits for.
  Result<DeviceProcess> start_process(FakeRank& rank, bool memory_lost) {
    for (const auto& end : rank.inside) end.wait();
    rank.inside.clear();
    if (memory_lost) {
      const auto bytes = static_cast<std::size_t>(rank.memory->block_bytes() * kDeviceBlocks);
      std::memset(rank.memory->device_base(), 0xee, bytes);
      ++times_lost_;
    }
    auto worker_parts = make_worker(rank);
    if (!worker_parts) return fail(std::move(worker_parts.error()));
    const Instruments instruments{.trace = instruments_.trace, .journal = instruments_.journal, .place = rank.place};
    const CacheEngineActor cache_engine = spawn_cache_engine(*system_, make_cache_engine(rank).value(), instruments);
    const WorkerActor worker = spawn_worker(*system_, std::move(*worker_parts), cache_engine, instruments);
    rank.inside.push_back(end_of(cache_engine));
    rank.inside.push_back(end_of(worker));
    const auto process = system_->spawn(fake_process, worker, cache_engine);
    last_process_.at(static_cast<std::size_t>(rank.place.replica)) = caf::actor_cast<caf::actor_addr>(process);
    return DeviceProcess{process, ++last_pid_, 0, memory_lost};
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
  Result<RequestId> submit(std::uint64_t tag, std::int64_t max_tokens, const std::string& adapter = {}) {
    const auto shared = std::make_shared<GenerateRequest>(request(tag, max_tokens));
    shared->adapter = adapter;
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

  /// Returns the present actors of a replica.
  Replica replica(std::size_t id = 0) {
    return ask<Replica>(running_.replicas.at(id).supervisor, GetReplica{});
  }

  std::shared_ptr<test::MemoryJournal> journal_ = std::make_shared<test::MemoryJournal>(500);
  Instruments instruments_{nullptr, journal_};
  caf::actor_system_config config_;
  std::shared_ptr<kernels::Device> device_ = kernels::create_cpu_device({1, "", "none"}).value();
  std::atomic<std::int64_t> last_pid_ = 0;
  std::atomic<int> times_lost_ = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool has_adapters_ = false;
  layers::AdapterModules modules_;
  std::shared_ptr<FakeAdapterFiles> adapter_files_ = std::make_shared<FakeAdapterFiles>();
  std::shared_ptr<test::FakeRunners> runners_ = std::make_shared<test::FakeRunners>();
  std::array<std::atomic<bool>, 4> no_more_workers_{};  ///< by replica
  std::array<caf::actor_addr, 4> last_process_;         ///< by replica
  std::vector<std::weak_ptr<FakeRank>> ranks_;          ///< by replica and rank; then those that were made again
  std::shared_ptr<ReceivedEnds> received_ = std::make_shared<ReceivedEnds>();
  // Declared after the fields that the actors use, because its destructor waits for the actors.
  std::unique_ptr<caf::actor_system> system_;
  RunningEngine running_;
  SharedActors shared_;
  Replica replica_;  ///< replica 0 at the start
  caf::actor supervisor_;
  SinkActor sink_;
};

}  // namespace pagoda::actors::fakes
