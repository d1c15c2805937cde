#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/execution/message_checks.hpp"
#include "engine/execution/step_deadlines.hpp"
#include "engine/trace/tracer.hpp"
#include "io/device_link/frame_channel.hpp"
#include "io/device_link/messages.hpp"
#include "io/device_link/shared_kv_memory.hpp"
#include "io/device_link/shared_weights.hpp"
#include "io/device_link/stage_relay.hpp"
#include "io/device_link/worker_peer.hpp"
#include "kernels/cpu/rank_memory.hpp"

namespace pagoda::device_link {

class JoinListener;

/// How the worker processes of a device are started, and the limits that their messages are checked against.
struct WorkerProcessConfig {
  std::vector<std::string> command;     ///< program that calls run_worker_process, with its arguments
  std::shared_ptr<JoinListener> joins;  ///< provides workers of other hosts; null: `command` starts them here
  StartWorker start;
  execution::DeviceLimits limits;
  std::int64_t block_bytes = 0;
  std::shared_ptr<SharedKvMemory> memory;  ///< memory of the KV blocks; null: each process has its own
  std::shared_ptr<SharedWeights> weights;  ///< memory of copies of weights; null: each process has its own
  /// Memory through which the ranks of the replica exchange rows; null: there is one rank.
  std::shared_ptr<kernels::RankMemory> exchange;
  /// Passes rows between the stages of workers that join; null: there is one stage, or they are on this host.
  std::shared_ptr<StageRelay> stages;
  std::string device;  ///< device of several, for messages, for example "replica 1, rank 0"; empty: there is one
  TimeUs step_deadline_us = 0;  ///< time limit of a step; 0: from measured times
  trace::SharedTracer trace;
};

/// The engine's side of a worker process, which runs one worker and one cache engine on a device. The process is either
/// a child with an inherited socket, to which no other process can connect, or has joined from another host.
///
/// A thread reads the messages of the process. It detects at once that the process has ended, is stopped, or has sent
/// an invalid message, and at its deadline that a step takes too long. The first of these calls `on_end` once; no other
/// event follows.
class WorkerProcess {
 public:
  /// Measured step times of a device, for all processes that ran on it.
  using SharedDeadlines = std::shared_ptr<execution::StepDeadlines>;
  using Progress = std::function<void(std::string_view what, double done)>;

  /// Callbacks, on the reading thread.
  struct Listener {
    std::function<void(StepResult)> on_result;
    std::function<void(SwapMeasured)> on_swap;
    std::function<void(actors::AdapterLoaded)> on_adapter;
    std::function<void(actors::DeviceFailed)> on_end;  ///< the caller must then destroy the WorkerProcess
  };

  /// Starts a process, or waits for one to join, and blocks until its model is loaded, or stop is requested. Errors:
  /// the error that the process reports; io_failed; shutting_down if stop was requested; device_failed if the process
  /// ends without a report, or reports no progress for kMaxSilenceUs.
  static Result<std::unique_ptr<WorkerProcess>> start(WorkerProcessConfig config, SharedDeadlines deadlines,
                                                      const Progress& progress, const std::stop_token& stop = {});
  static constexpr TimeUs kMaxSilenceUs = 900'000'000;
  /// Ends the process, even if it hangs, and waits for its end.
  ~WorkerProcess();

  /// Returns the process id on the worker's host.
  std::int64_t pid() const { return pid_; }
  /// Returns a name for messages, for example "the worker process 4711", or "the worker process 4711 (replica 1)".
  std::string name() const {
    return config_.device.empty() ? peer_->name() : peer_->name() + " (" + config_.device + ")";
  }
  const LoadedDeviceFacts& device() const { return device_; }
  /// Returns whether the process is known to have ended or to be stopped. Call before listen().
  bool has_ended() const;
  /// From now on this process has its stage of the model: it gets the rows of the stage before it. Call before a
  /// process of any stage gets a step.
  void take_stage();
  /// Starts the reading thread. Call once, before the first send().
  void listen(Listener listener);
  /// Sends a message to the process. Call all overloads on one thread.
  void send(ExecuteStep step);
  void send(StepMasks masks);
  void send(CachePlan plan);
  void send(const actors::LoadAdapter& load);
  void send(const actors::UnloadAdapter& unload);

 private:
  /// Size of a step in flight, for the trace.
  struct SentStep {
    std::int64_t num_rows = 0;
    std::int64_t num_tokens = 0;
  };

  WorkerProcess(WorkerProcessConfig config, SharedDeadlines deadlines);
  Status spawn(WorkerPeer::Events events);
  Status await(WorkerPeer::Events events, const Progress& progress, const std::stop_token& stop);
  Status load(const Progress& progress, const std::stop_token& stop);
  void run();
  bool on_frame(std::span<const std::byte> frame);
  bool on_result(StepResult result);
  bool on_rows(StageRows rows);
  std::optional<TimeUs> before_wait();
  void trace_step(const StepResult& result, const SentStep& step) const;
  /// Returns the reason why the link has ended.
  actors::DeviceFailed end_reason(FrameChannel::End end);

  WorkerProcessConfig config_;
  Listener listener_;  // used while thread_ runs
  std::unique_ptr<FrameChannel> channel_;
  std::promise<PeerEnd> reported_end_;
  std::shared_future<PeerEnd> end_ = reported_end_.get_future().share();
  std::atomic<bool> is_stopped_ = false;
  std::unique_ptr<WorkerPeer> peer_;  // its events use the fields above
  std::int64_t pid_ = 0;
  LoadedDeviceFacts device_;
  int traced_as_ = trace::StepTrace::kEngineProcess;
  std::mutex mutex_;  // guards the fields below, which the sending and the reading thread use
  SharedDeadlines deadlines_;
  execution::ResultChecks checks_;
  std::deque<SentStep> sent_;
  std::int64_t moved_bytes_ = 0;         // bytes moved by cache plans whose step is not sent yet
  std::int64_t num_loading_ = 0;         // adapters that the process loads beside its steps
  std::set<AdapterId> loaded_adapters_;  // adapters for which no step waits
  bool has_ended_a_step_ = false;
  TimeUs waits_since_ = 0;                       // time at which the reading thread began to wait
  std::optional<TimeUs> waits_until_;            // deadline of this wait, if there is one
  StepId overdue_ = 0;                           // step that was past its deadline at the last check
  std::uint64_t received_at_overdue_ = 0;        // num_received() at that check
  std::optional<actors::DeviceFailed> problem_;  // failure that this process has found, or that the worker reported
  std::thread thread_;
};

}  // namespace pagoda::device_link
