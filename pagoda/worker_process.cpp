#include "pagoda/worker_process.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/config_file.hpp"
#include "io/device_link/child_process.hpp"
#include "io/device_link/device_proxy.hpp"
#include "io/device_link/join_listener.hpp"
#include "io/device_link/stage_link.hpp"
#include "io/device_link/stage_relay.hpp"
#include "io/device_link/worker_host.hpp"
#include "io/model_files/model_fingerprint.hpp"
#include "io/version.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda {
namespace {

/// Number of failed starts, of an engine's first process or of a later process that reports an error, after which the
/// engine gives up. A later process that ends while it loads is restarted without limit, and so is a worker that joins.
constexpr int kMaxStarts = 8;
/// Pauses between two such starts, and before the replacement of a process that lived less than kShortLife:
/// kFirstPause, then twice as long each time, at most kLongestPause.
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kShortLife = std::chrono::seconds(1);

/// Returns whether the error may be temporary, so that another start is worth a try. An engine's first start is not
/// repeated for such an error: its user gets the error.
bool may_be_temporary(ErrorCode code) {
  return code == ErrorCode::io_failed || code == ErrorCode::out_of_memory;
}

/// Descriptors that a process gets beside its end of the link. A descriptor that it does not get becomes a copy of the
/// link.
constexpr int kMemoryDescriptor = device_link::kInheritedDescriptor + 1;
constexpr int kWeightsDescriptor = kMemoryDescriptor + 1;
constexpr int kExchangeDescriptor = kWeightsDescriptor + 1;

device_link::SharedKvMemory::Size kept_size(const EnginePlan& plan) {
  return {plan.layout.block_bytes() * plan.num_device_blocks, plan.layout.block_bytes() * plan.num_host_blocks};
}

/// Makes the memory of KV blocks that outlives processes. Returns null if there can be none: a GPU or another host has
/// its own memory, or swapped blocks are in a file.
Result<std::shared_ptr<device_link::SharedKvMemory>> shared_kv_memory(const EngineConfig& config,
                                                                      const EnginePlan& plan) {
  if (config.device != "cpu" || !config.swap_dir.empty() || !config.worker_listen.empty()) return nullptr;
  return device_link::SharedKvMemory::create(kept_size(plan));
}

execution::DeviceLimits device_limits(const EngineConfig& config, const EnginePlan& plan,
                                      std::int32_t num_device_blocks, std::int32_t num_host_blocks) {
  const execution::RunnerConfig runner = runner_config(config, plan);
  return {.max_num_seqs = runner.max_num_seqs,
          .max_num_samples = runner.max_num_samples,
          .max_num_batched_tokens = runner.max_num_batched_tokens,
          .max_model_len = runner.max_model_len,
          .vocab_size = runner.vocab_size,
          .num_device_blocks = num_device_blocks,
          .num_host_blocks = num_host_blocks,
          .layout = runner.layout,
          .samples = runner.samples,
          .has_draft_model = runner.draft_vocab_size > 0,
          .has_draft_head = runner.features.has_value()};
}

/// Returns whether pools that a worker has planned have a possible number of blocks. The engine keeps a record of each
/// block.
bool are_sound(const device_link::LoadedDeviceFacts& device, const EngineConfig& config, const EnginePlan& plan) {
  const std::int64_t block_bytes = plan.layout.block_bytes();
  const std::int64_t all_rows = blocks_for_all_rows(config, plan);
  const std::int64_t most_device = std::max<std::int64_t>(config.num_device_blocks, all_rows);
  const auto configured_swap = static_cast<std::int64_t>(std::max(0.0, config.swap_space) * kBytesPerGib) / block_bytes;
  const std::int64_t most_host = std::max({std::int64_t{config.num_host_blocks}, all_rows, configured_swap});
  return device.num_device_blocks > 0 && device.num_device_blocks <= most_device && device.num_host_blocks >= 0 &&
         device.num_host_blocks <= most_host;
}

/// Returns the part of the engine's configuration that a worker needs.
EngineConfig config_of_worker(EngineConfig config) {
  config.worker_listen.clear();
  config.worker_tls_cert.clear();
  config.worker_tls_key.clear();
  config.worker_tls_ca.clear();
  config.standby_worker = false;
  config.journal.clear();
  config.trace.clear();
  return config;
}

/// As above, for a worker on this host that follows the engine's plan: the memory that is free when it loads does not
/// decide again whether it copies weights.
EngineConfig config_of_worker(EngineConfig config, const EnginePlan& plan) {
  if (config.device == "cpu") config.weight_memory = plan.weights.copy_linear ? "copied" : "mapped";
  return config_of_worker(std::move(config));
}

/// A process that loads the model on a thread before it is needed.
class StandbyWorker {
 public:
  using Process = std::unique_ptr<device_link::WorkerProcess>;

  void begin(const device_link::WorkerProcessConfig& process,
             const device_link::WorkerProcess::SharedDeadlines& deadlines, const std::stop_token& stop) {
    thread_ = std::jthread([this, process, deadlines, stop] {
      loaded_ = device_link::WorkerProcess::start(process, deadlines, nullptr, stop);
    });
  }

  /// Waits until the process has loaded. Returns nothing if no process was begun, and an error also if the process has
  /// ended since.
  std::optional<Result<Process>> take() {
    if (!thread_.joinable()) return std::nullopt;
    thread_.join();
    if (loaded_ && (*loaded_)->has_ended()) {
      loaded_ = fail(ErrorCode::device_failed, (*loaded_)->name() + " has ended while it waited to take over");
    }
    return std::exchange(loaded_, nullptr);
  }

 private:
  Result<Process> loaded_ = nullptr;
  std::jthread thread_;  // declared last, so that its end is waited for before loaded_ is destroyed
};

/// Starts processes one after the other until one has loaded the model.
class WorkerStarts {
 public:
  WorkerStarts(device_link::WorkerProcessConfig process, bool stand_by, StartProgress progress,
               std::int64_t weight_bytes)
      : process_(std::move(process)),
        stands_by_(stand_by),
        progress_(std::move(progress)),
        deadlines_(std::make_shared<execution::StepDeadlines>(process_.step_deadline_us, weight_bytes)) {}

  /// Ends the wait for a process that stands by.
  ~WorkerStarts() { stop_.request_stop(); }
  WorkerStarts(const WorkerStarts&) = delete;
  WorkerStarts& operator=(const WorkerStarts&) = delete;

  /// Starts a first process that plans the memory of its device. Later processes get pools of the same size.
  Result<device_link::LoadedDeviceFacts> start_first() {
    auto started = start_one(/*memory_lost=*/true);
    if (!started) return fail(std::move(started.error()));
    const auto& device = started->process->device();
    process_.start.num_device_blocks = device.num_device_blocks;
    process_.start.num_host_blocks = device.num_host_blocks;
    first_ = std::move(*started);
    return first_->process->device();
  }

  Result<actors::DeviceProcess> start(caf::actor_system& system, bool memory_lost) {
    // All processes of the replica have ended, but not one that stands by, which has not begun a step.
    if (process_.exchange != nullptr) process_.exchange->reset(process_.start.rank);
    auto started = first_ ? Result<Started>(std::move(*first_)) : start_one(memory_lost);
    first_.reset();
    if (!started) return fail(std::move(started.error()));
    const std::int64_t pid = started->process->pid();
    started->process->take_stage();
    if (stands_by_) standby_.begin(process_, deadlines_, stop_.get_token());
    return actors::DeviceProcess{device_link::spawn_device_proxy(system, std::move(started->process)), pid,
                                 started->num_failures, started->memory_lost};
  }

  void give_up() { stop_.request_stop(); }

 private:
  struct Started {
    StandbyWorker::Process process;
    int num_failures = 0;  ///< number of processes before it that failed
    bool memory_lost = false;
  };

  Result<Started> start_one(bool memory_lost) {
    using Clock = std::chrono::steady_clock;
    const bool is_first = !last_ready_;
    if (last_ready_ && Clock::now() - *last_ready_ < kShortLife) {
      pause();
    } else {
      pause_ = kFirstPause;
    }
    std::optional<Result<StandbyWorker::Process>> standby = standby_.take();
    memory_lost |= process_.memory == nullptr;
    for (int failures = 0;; ++failures) {
      if (memory_lost && process_.memory != nullptr && !is_first) {
        if (const Status cleared = process_.memory->clear(); !cleared) return fail(cleared.error());
      }
      auto process = standby ? std::move(*standby)
                             : device_link::WorkerProcess::start(process_, deadlines_, progress_, stop_.get_token());
      const bool stood_by = std::exchange(standby, std::nullopt).has_value();
      if (process) {
        // Later processes use this memory again and need not touch it at their start.
        process_.start.touch_memory = false;
        progress_ = nullptr;
        last_ready_ = Clock::now();
        spdlog::info("{} is ready", (*process)->name());
        return Started{std::move(*process), failures, memory_lost};
      }
      const Error& error = process.error();
      if (!may_start_again(error.code, is_first, failures + 1)) return fail(error);
      spdlog::warn("{}; another is {}", error.message, process_.joins == nullptr ? "started" : "waited for");
      if (stood_by) continue;
      memory_lost = true;  // the failed process had the memory mapped
      pause();
    }
  }

  bool may_start_again(ErrorCode code, bool is_first, int failures) const {
    // When workers join from other hosts, a failure may come from what one host lacks: another worker may join.
    if (process_.joins != nullptr) return code != ErrorCode::shutting_down;
    if (!is_first && code == ErrorCode::device_failed) return true;
    return failures < kMaxStarts && (code == ErrorCode::device_failed || (!is_first && may_be_temporary(code)));
  }

  /// Waits before the next start. give_up() ends the wait.
  void pause() {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop_.get_token(), pause_, [] { return false; });
    if (process_.joins == nullptr) pause_ = std::min(2 * pause_, kLongestPause);
  }

  device_link::WorkerProcessConfig process_;
  bool stands_by_;
  StartProgress progress_;
  device_link::WorkerProcess::SharedDeadlines deadlines_;
  std::stop_source stop_;
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<std::chrono::steady_clock::time_point> last_ready_;
  std::optional<Started> first_;  // the process of start_first(), until start()
  StandbyWorker standby_;
};

/// Ends the process when its parent has ended for any reason. The socket also closes then, but only a reader notices.
void bind_to_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The engine's process decides when this one ends, even if a signal goes to all processes of a service. No terminal
  // stops it.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU}) std::signal(signal, SIG_IGN);
  // Closes descriptors that the engine's process has left open: clients' sockets would stay open with this process.
  ::syscall(SYS_close_range, kExchangeDescriptor + 1, ~0U, 0);
  // Occupies missing descriptors, so that no other file gets their numbers. They are missing when the process works for
  // another host, and only a later message shows whether they exist.
  for (const int place : {kMemoryDescriptor, kWeightsDescriptor, kExchangeDescriptor}) {
    if (::fcntl(place, F_GETFD) < 0) ::dup2(device_link::kInheritedDescriptor, place);
  }
}

struct LoadedWorker {
  actors::WorkerParts worker;
  actors::CacheParts cache;
  execution::DeviceLimits limits;
  device_link::LoadedDeviceFacts facts;
  std::shared_ptr<device_link::StageLink> stages;  ///< with stages on other hosts; null: there are none
};

bool has_joined(const device_link::StartWorker& start) {
  return !start.model.empty();
}

/// Checks that `path` has the engine's model. Errors: bad_config (other files).
Status check_same_model(const std::string& path, const std::string& expected) {
  if (expected.empty()) return {};
  const auto fingerprint = io::model_fingerprint(path);
  if (!fingerprint) return fail(fingerprint.error());
  if (*fingerprint == expected) return {};
  return fail(ErrorCode::bad_config, "the model at " + path + " is not the engine's model", "model");
}

/// Uses another GPU than the engine's configuration names. Errors: bad_config.
Status use_gpu(EngineConfig& config, const std::string& device) {
  if (config.device == "cpu" || device == "cpu") {
    return fail(ErrorCode::bad_config,
                "the engine's device is " + config.device + ", the worker's " + device + " cannot take its place",
                "device");
  }
  config.device = device;
  if (const auto problems = config.validate(); !problems.empty()) return fail(problems.front());
  return {};
}

/// `link`: to the engine, which lives longer than the worker.
Result<LoadedWorker> load_worker(const device_link::StartWorker& start, const WorkerOptions& options,
                                 device_link::FrameChannel& link, const StartProgress& progress) {
  if (start.version != version()) {
    return fail(ErrorCode::bad_config,
                "the worker is Pagoda " + std::string(version()) + ", the engine is " + start.version);
  }
  auto config = io::parse_engine_config(start.config, "the engine's configuration");
  if (!config) return fail(std::move(config.error()));
  if (!options.model.empty()) config->model = options.model;
  config->replica = start.replica;
  config->rank = start.rank;
  PAGODA_ASSERT(config->num_ranks() == start.num_ranks, "the engine divides the model");
  if (options.threads > 0) config->threads = options.threads;
  if (has_joined(start)) {
    config->has_own_host = true;
    config->packed_cache = options.packed_cache;
  }
  if (Status same = check_same_model(config->model, start.model); !same) return fail(std::move(same.error()));
  if (!options.device.empty()) {
    if (Status named = use_gpu(*config, options.device); !named) return fail(std::move(named.error()));
  }
  config->num_device_blocks = start.num_device_blocks;
  config->num_host_blocks = start.num_host_blocks;
  config->touch_memory = start.touch_memory;
  auto device = options.create_device ? options.create_device(*config) : create_device(*config);
  if (!device) return fail(std::move(device.error()));
  const auto plan = plan_engine(*config, **device);
  if (!plan) return fail(plan.error());
  const auto kept = [&]() -> Result<execution::KvPools> {
    if (!start.keeps_memory) return execution::KvPools{};
    return device_link::SharedKvMemory::map(**device, kMemoryDescriptor, kept_size(*plan));
  };
  std::shared_ptr<device_link::MappedWeights> weights;
  if (start.kept_weight_bytes > 0) {
    auto mapped =
        device_link::MappedWeights::map(**device, kWeightsDescriptor, start.kept_weight_bytes, config->touch_memory);
    if (!mapped) return fail(std::move(mapped.error()));
    weights = std::move(*mapped);
  }
  std::shared_ptr<device_link::StageLink> stages;
  ConnectRank connect;
  if (start.num_ranks > 1 && has_joined(start)) {
    stages = std::make_shared<device_link::StageLink>(
        plan->model.place, rank_memory_shape(*plan).row_floats,
        [&link](device_link::StageRows rows) { link.send(device_link::FromWorker(std::move(rows))); });
    connect = [stages] { return stages->communicator(); };
  } else if (start.num_ranks > 1) {
    auto mapped = kernels::RankMemory::map(kExchangeDescriptor, rank_memory_shape(*plan));
    if (!mapped) return fail(std::move(mapped.error()));
    ::close(kExchangeDescriptor);
    connect = [exchange = std::move(*mapped), rank = start.rank] { return exchange->communicator(rank); };
  }
  auto loaded = load_device(*config, *plan, *device, progress,
                            {.pools = kept, .weights = weights, .connect = std::move(connect)});
  if (!loaded) return fail(std::move(loaded.error()));
  auto cache = loaded->factory.make_cache_engine();
  if (!cache) return fail(std::move(cache.error()));
  auto worker = loaded->factory.make_worker();
  if (!worker) return fail(std::move(worker.error()));
  return LoadedWorker{std::move(*worker),
                      std::move(*cache),
                      device_limits(*config, *plan, loaded->num_device_blocks, loaded->num_host_blocks),
                      {std::move(loaded->description), loaded->num_device_blocks, loaded->num_host_blocks},
                      std::move(stages)};
}

std::optional<device_link::StartWorker> receive_start(device_link::FrameChannel& channel) {
  std::optional<device_link::StartWorker> start;
  channel.run([&](std::span<const std::byte> frame) {
    device_link::ToWorker message;
    if (decode(frame, message)) {
      if (auto* first = std::get_if<device_link::StartWorker>(&message)) start = std::move(*first);
    }
    return false;
  });
  return start;
}

/// Returns the exit code.
int work(const WorkerOptions& options) {
  bind_to_parent();
  auto channel = device_link::FrameChannel::create(device_link::Descriptor(device_link::kInheritedDescriptor));
  const auto start = channel ? receive_start(**channel) : std::nullopt;
  if (!start) return EXIT_FAILURE;
  if (!start->keeps_memory) ::close(kMemoryDescriptor);
  if (start->kept_weight_bytes == 0) ::close(kWeightsDescriptor);
  if (start->num_ranks == 1 || has_joined(*start)) ::close(kExchangeDescriptor);
  device_link::FrameChannel& link = **channel;
  const auto progress = [&](std::string_view what, double done) {
    link.send(device_link::FromWorker(device_link::LoadProgress{std::string(what), done}));
  };
  auto loaded = load_worker(*start, options, link, progress);
  if (!loaded) {
    // A worker that has joined logs the error itself, because the engine's log is not beside it.
    if (has_joined(*start)) spdlog::error("{}", loaded.error().message);
    link.send(device_link::FromWorker(device_link::StartFailed{std::move(loaded.error())}));
    return EXIT_FAILURE;
  }
  init_actor_types();
  constexpr std::size_t kPoolThreads = 1;
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kPoolThreads);
  caf::actor_system system(system_config);
  device_link::host_device(system, link, std::move(loaded->worker), std::move(loaded->cache), loaded->limits,
                           std::move(loaded->facts), loaded->stages.get());
  std::_Exit(EXIT_SUCCESS);  // results of steps that still run are not needed
}

}  // namespace

Result<std::shared_ptr<device_link::SharedWeights>> shared_weights(const EngineConfig& config, const EnginePlan& plan) {
  if (config.device != "cpu" || plan.copied_weight_bytes == 0 || !config.worker_listen.empty()) return nullptr;
  return device_link::SharedWeights::create(plan.copied_weight_bytes);
}

bool worker_plans_memory(const EngineConfig& config) {
  return config.worker_processes && (config.device != "cpu" || !config.worker_listen.empty());
}

Result<JoiningWorkers> listen_for_workers(const EngineConfig& config, const EnginePlan& plan) {
  if (config.worker_listen.empty()) return JoiningWorkers{};
  auto listener = device_link::JoinListener::create(
      config.worker_listen, {config.worker_tls_cert, config.worker_tls_key, config.worker_tls_ca});
  if (!listener) return fail(std::move(listener.error()));
  spdlog::info("workers join at {}", (*listener)->address());
  JoiningWorkers joining{.listener = std::move(*listener), .stages = nullptr};
  if (const std::int32_t num_stages = config.pipeline_parallel_size; num_stages > 1) {
    joining.stages = std::make_shared<device_link::StageRelay>(num_stages, rank_memory_shape(plan).row_floats);
  }
  return joining;
}

Result<LoadedDevice> worker_process_device(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                           const trace::SharedTracer& trace, SharedByProcesses shared,
                                           const JoiningWorkers& joining) {
  const bool joins = joining.listener != nullptr;
  if (setup.worker_command.empty() && !joins) {
    return fail(ErrorCode::bad_config, "worker_processes needs EngineSetup::worker_command, the program to start",
                "worker_processes");
  }
  if (setup.device != nullptr) {
    return fail(ErrorCode::bad_config,
                "worker_processes makes the device in the worker process, so EngineSetup::device must be empty",
                "worker_processes");
  }
  const bool plans_there = worker_plans_memory(config);
  auto memory = shared_kv_memory(config, plan);
  if (!memory) return fail(std::move(memory.error()));
  const std::int32_t device_blocks = plans_there ? config.num_device_blocks : plan.num_device_blocks;
  const std::int32_t host_blocks = plans_there ? config.num_host_blocks : plan.num_host_blocks;
  device_link::WorkerProcessConfig process{
      .command = setup.worker_command,
      .joins = joining.listener,
      .start = {.version = std::string(version()),
                .config = io::to_text(plans_there ? config_of_worker(config) : config_of_worker(config, plan)),
                .num_device_blocks = device_blocks,
                .num_host_blocks = host_blocks,
                .touch_memory = config.touch_memory,
                .keeps_memory = *memory != nullptr,
                .kept_weight_bytes = shared.weights != nullptr ? shared.weights->bytes() : 0,
                .model = "",
                .replica = config.replica,
                .rank = config.rank,
                .num_ranks = config.num_ranks()},
      .limits = device_limits(config, plan, device_blocks, host_blocks),
      .block_bytes = plan.layout.block_bytes(),
      .memory = *memory,
      .weights = std::move(shared.weights),
      .exchange = std::move(shared.exchange),
      .stages = joining.stages,
      .device = config.device_name(),
      .step_deadline_us = static_cast<TimeUs>(config.step_deadline * 1e6),
      .trace = trace};
  if (joins) {
    auto fingerprint = io::model_fingerprint(config.model);
    if (!fingerprint) return fail(std::move(fingerprint.error()));
    process.start.model = std::move(*fingerprint);
  }
  const auto starts =
      std::make_shared<WorkerStarts>(std::move(process), config.standby_worker, setup.progress,
                                     plans_there ? plan.checkpoint->facts().weight_bytes : plan.memory.weight_bytes);
  device_link::LoadedDeviceFacts device{{}, plan.num_device_blocks, plan.num_host_blocks};
  if (plans_there) {
    auto first = starts->start_first();
    if (!first) return fail(std::move(first.error()));
    device = std::move(*first);
    if (!are_sound(device, config, plan)) {
      return fail(ErrorCode::device_failed, "a worker reports that its device has room for " +
                                                std::to_string(device.num_device_blocks) + " KV blocks and " +
                                                std::to_string(device.num_host_blocks) + " host blocks");
    }
  }
  actors::DeviceFactory factory;
  factory.start_process = [starts](caf::actor_system& system, bool memory_lost) {
    return starts->start(system, memory_lost);
  };
  factory.give_up = [starts] { starts->give_up(); };
  if (*memory != nullptr) factory.plans_done = [kept = *memory] { return kept->last_plan(); };
  return LoadedDevice{std::move(factory), std::move(device.description), device.num_device_blocks,
                      device.num_host_blocks};
}

void run_worker_process(const WorkerOptions& options) {
  std::_Exit(work(options));
}

}  // namespace pagoda
