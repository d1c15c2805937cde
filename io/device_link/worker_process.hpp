#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/execution/message_checks.hpp"
#include "engine/execution/step_deadlines.hpp"
#include "engine/trace/tracer.hpp"
#include "io/device_link/frame_channel.hpp"
#include "io/device_link/kept_memory.hpp"
#include "io/device_link/kept_weights.hpp"
#include "io/device_link/messages.hpp"
#include "io/device_link/worker_peer.hpp"

namespace pagoda::device_link {

class JoinListener;

/// How the worker processes of a device are started and held against what they may do.
struct WorkerProcessConfig {
  std::vector<std::string> command;     ///< a program that calls run_worker_process, and its arguments
  std::shared_ptr<JoinListener> joins;  ///< where workers come from; null: they are started here, by `command`
  StartWorker start;
  execution::DeviceLimits limits;
  std::int64_t block_bytes = 0;
  std::shared_ptr<KeptMemory> memory;    ///< of the KV blocks; null: each process has its own, and it ends with it
  std::shared_ptr<KeptWeights> weights;  ///< likewise of copies of weights
  TimeUs step_deadline_us = 0;           ///< 0 = by measured times
  trace::SharedTracer trace;
};

/// A worker process as the engine's process sees it: one worker and one cache engine on a device, behind an inherited
/// socket, to which nobody else can connect; or on another host, from where it has joined.
///
/// A thread reads what it says, and notices at once when it has ended, is stopped, or says what cannot be; and at the
/// deadline when a step takes too long. Each of these is told once, as `on_end`, and nothing is heard of it afterwards.
class WorkerProcess {
 public:
  /// What steps of the same device were measured to take, whichever process ran them.
  using SharedDeadlines = std::shared_ptr<execution::StepDeadlines>;
  using Progress = std::function<void(std::string_view what, double done)>;

  /// Called on the thread that reads.
  struct Listener {
    std::function<void(StepResult)> on_result;
    std::function<void(SwapMeasured)> on_swap;
    std::function<void(actors::DeviceFailed)> on_end;  ///< the process must be ended, if it has not
  };

  /// Starts a process, or waits for one to join, and blocks until its model is loaded, or `stop` is asked for. Errors:
  /// what the process reports; io_failed; device_failed when it ended without a report, or has told of no progress for
  /// kLongestSilenceUs.
  static Result<std::unique_ptr<WorkerProcess>> start(WorkerProcessConfig config, SharedDeadlines deadlines,
                                                      const Progress& progress, const std::stop_token& stop = {});
  static constexpr TimeUs kLongestSilenceUs = 900'000'000;
  /// Ends the process, whatever it does, and waits for its end.
  ~WorkerProcess();

  /// On its host.
  std::int64_t pid() const { return pid_; }
  /// "the worker process 4711", for messages.
  std::string name() const { return peer_->name(); }
  const LoadedDeviceFacts& device() const { return device_; }
  /// Whether it is known to have ended or to be stopped. Before listen().
  bool has_ended() const;
  /// Begins to listen. Once, before the first send.
  void listen(Listener listener);
  /// One thread.
  void send(ExecuteStep step);
  void send(StepMasks masks);
  void send(CachePlan plan);

 private:
  /// Of a step in flight, for the trace.
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
  std::optional<TimeUs> before_wait();
  void trace_step(const StepResult& result, const SentStep& step) const;
  /// Why there is nothing more to hear.
  actors::DeviceFailed why_it_ended(FrameChannel::End end);

  WorkerProcessConfig config_;
  Listener listener_;  // as long as thread_ runs
  std::unique_ptr<FrameChannel> channel_;
  std::promise<PeerEnd> reported_end_;
  std::shared_future<PeerEnd> end_ = reported_end_.get_future().share();
  std::atomic<bool> is_stopped_ = false;
  std::unique_ptr<WorkerPeer> peer_;  // its events use what stands before it
  std::int64_t pid_ = 0;
  LoadedDeviceFacts device_;
  int traced_as_ = trace::StepTrace::kEngineProcess;
  std::mutex mutex_;  // of what follows: who sends and who reads
  SharedDeadlines deadlines_;
  execution::ResultChecks checks_;
  std::deque<SentStep> sent_;
  std::int64_t moved_bytes_ = 0;  // by plans whose step is not sent yet
  bool has_ended_a_step_ = false;
  TimeUs waits_since_ = 0;  // and until when it wanted to, where there is a deadline
  std::optional<TimeUs> waits_until_;
  StepId overdue_ = 0;  // whose result was looked for once more, and how much had come then
  std::uint64_t received_at_overdue_ = 0;
  std::optional<actors::DeviceFailed> problem_;  // that was found here
  std::thread thread_;
};

}  // namespace pagoda::device_link
