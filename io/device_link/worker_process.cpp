#include "io/device_link/worker_process.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "actors/clock.hpp"
#include "io/device_link/child_process.hpp"
#include "io/device_link/join_listener.hpp"

namespace pagoda::device_link {

WorkerProcess::WorkerProcess(WorkerProcessConfig config, SharedDeadlines deadlines)
    : config_(std::move(config)), deadlines_(std::move(deadlines)), checks_(config_.limits) {}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(WorkerProcessConfig config, SharedDeadlines deadlines,
                                                            const Progress& progress, const std::stop_token& stop) {
  std::unique_ptr<WorkerProcess> process(new WorkerProcess(std::move(config), std::move(deadlines)));
  WorkerPeer::Events events{
      .on_stopped =
          [self = process.get()] {
            self->is_stopped_ = true;
            self->channel_->close();
          },
      .on_ended = [self = process.get()](const PeerEnd& end) { self->reported_end_.set_value(end); }};
  Status status = process->config_.joins == nullptr ? process->spawn(std::move(events))
                                                    : process->await(std::move(events), progress, stop);
  if (status) status = process->load(progress, stop);
  if (!status) return fail(std::move(status.error()));
  return process;
}

Status WorkerProcess::spawn(WorkerPeer::Events events) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
    return fail(ErrorCode::io_failed, std::string("the link to a worker process: ") + std::strerror(errno));
  }
  Descriptor own(ends[0]);
  // Closed at the end of this function. Otherwise the link would stay open after the end of the process.
  const Descriptor inherited(ends[1]);
  auto channel = FrameChannel::create(std::move(own));
  if (!channel) return fail(std::move(channel.error()));
  channel_ = std::move(*channel);
  // Each descriptor has a fixed place. The link is passed in place of a missing descriptor.
  const std::vector<int> given{inherited.get(), config_.memory != nullptr ? config_.memory->file() : inherited.get(),
                               config_.weights != nullptr ? config_.weights->file() : inherited.get(),
                               config_.exchange != nullptr ? config_.exchange->file() : inherited.get()};
  auto child = ChildProcess::start(config_.command, given, std::move(events));
  if (!child) return fail(std::move(child.error()));
  pid_ = (*child)->pid();
  peer_ = std::move(*child);
  return {};
}

Status WorkerProcess::await(WorkerPeer::Events events, const Progress& progress, const std::stop_token& stop) {
  if (progress) progress("waiting for a worker", 0);
  if (config_.joins->num_waiting() == 0) {
    spdlog::info("waiting for a worker to join{}", config_.device.empty() ? "" : " (" + config_.device + ")");
  }
  auto joined = config_.joins->wait_for_worker(std::move(events), stop);
  if (!joined) return fail(std::move(joined.error()));
  peer_ = std::move(joined->peer);
  auto channel = FrameChannel::create(std::move(joined->link), kMaxFrameBytesOfWorkers);
  if (!channel) return fail(std::move(channel.error()));
  channel_ = std::move(*channel);
  return {};
}

WorkerProcess::~WorkerProcess() {
  if (config_.stages != nullptr && channel_ != nullptr) config_.stages->disconnect(config_.start.rank, *channel_);
  if (channel_ != nullptr) channel_->close();
  if (thread_.joinable()) thread_.join();
}

Status WorkerProcess::load(const Progress& progress, const std::stop_token& stop) {
  const std::stop_callback when_stopped(stop, [this] { channel_->close(); });
  std::optional<Status> loaded;
  const TimeUs began = actors::now_us();
  TimeUs last_received = began;
  channel_->send(ToWorker(config_.start));
  const auto on_frame = [&](std::span<const std::byte> frame) {
    FromWorker message;
    if (!decode(frame, message)) return false;
    if (const auto* report = std::get_if<LoadProgress>(&message)) {
      last_received = actors::now_us();
      if (progress) progress(report->what, report->done);
      return true;
    }
    if (auto* failed = std::get_if<StartFailed>(&message)) {
      loaded = fail(std::move(failed->error));
      if (config_.joins != nullptr) loaded->error().message = name() + ": " + loaded->error().message;
    }
    if (auto* crashed = std::get_if<actors::DeviceFailed>(&message)) loaded = fail(std::move(crashed->error));
    if (auto* ready = std::get_if<WorkerReady>(&message)) {
      pid_ = ready->pid;
      device_ = std::move(ready->device);
      loaded = Status();
    }
    return false;
  };
  const auto before_wait = [&]() -> std::optional<TimeUs> {
    if (actors::now_us() < last_received + kMaxSilenceUs) return last_received + kMaxSilenceUs;
    loaded = fail(ErrorCode::device_failed, name() + " hangs: it reports no progress while it loads the model");
    channel_->close();
    return std::nullopt;
  };
  const auto end = channel_->run(on_frame, before_wait);
  if (stop.stop_requested()) return fail(ErrorCode::shutting_down, "the engine is shutting down");
  if (loaded && *loaded && trace::is_on(config_.trace)) {
    traced_as_ = config_.trace->add_process(name());
    config_.trace->span(trace::Row::device, "load", began, actors::now_us(), {{"pid", pid_}}, {}, traced_as_);
  }
  if (loaded) return *loaded;
  const actors::DeviceFailed why = end_reason(end);
  return fail(why.error.code, why.error.message + " while it loaded the model");
}

bool WorkerProcess::has_ended() const {
  return is_stopped_ || end_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void WorkerProcess::take_stage() {
  if (config_.stages != nullptr) config_.stages->connect(config_.start.rank, *channel_);
}

void WorkerProcess::listen(Listener listener) {
  listener_ = std::move(listener);
  deadlines_->begin();
  thread_ = std::thread([this] { run(); });
}

void WorkerProcess::send(ExecuteStep step) {
  execution::StepSize size;
  for (const RowWork& work : step.work) {
    const std::int64_t num_draft_tokens = work.num_draft_inputs + work.num_made_drafts();
    size.num_tokens += work.num_tokens;
    size.num_pairs += std::int64_t{work.num_tokens} * work.end_position();
    size.num_draft_tokens += num_draft_tokens;
    size.num_draft_pairs += num_draft_tokens * work.end_position();
  }
  bool was_idle = false;
  {
    const std::lock_guard lock(mutex_);
    was_idle = deadlines_->num_in_flight() == 0;
    checks_.sent(step);
    size.moved_bytes = std::exchange(moved_bytes_, 0);
    size.num_loads = num_loading_;  // they may use the threads of the step
    for (const NewRow& row : step.new_rows) {
      const AdapterId adapter = row.spec.adapter.id;
      if (adapter != 0 && loaded_adapters_.insert(adapter).second) ++size.num_loads;
    }
    deadlines_->sent(step.step, size, actors::now_us(), step.wait_for_masks);
    sent_.push_back({std::ssize(step.work), size.num_tokens});
  }
  channel_->send(ToWorker(std::move(step)));
  if (was_idle) channel_->wake();  // the reading thread now has a deadline
}

void WorkerProcess::send(StepMasks masks) {
  {
    const std::lock_guard lock(mutex_);
    deadlines_->masks_sent(masks.step, actors::now_us());
  }
  channel_->send(ToWorker(std::move(masks)));
  channel_->wake();  // the reading thread now has a deadline
}

void WorkerProcess::send(CachePlan plan) {
  {
    const std::lock_guard lock(mutex_);
    moved_bytes_ += config_.block_bytes * std::ssize(plan.swap_out);
    moved_bytes_ += config_.block_bytes * std::ssize(plan.swap_in);
    moved_bytes_ += config_.block_bytes * std::ssize(plan.copies);
  }
  channel_->send(ToWorker(std::move(plan)));
}

void WorkerProcess::send(const actors::LoadAdapter& load) {
  {
    const std::lock_guard lock(mutex_);
    ++num_loading_;
  }
  channel_->send(ToWorker(load));
}

void WorkerProcess::send(const actors::UnloadAdapter& unload) {
  {
    const std::lock_guard lock(mutex_);
    loaded_adapters_.erase(unload.adapter);
  }
  channel_->send(ToWorker(unload));
}

void WorkerProcess::run() {
  auto end = FrameChannel::End::closed;
  try {
    end = channel_->run([this](std::span<const std::byte> frame) { return on_frame(frame); },
                        [this] { return before_wait(); });
  } catch (const std::exception& problem) {  // for example std::bad_alloc: a message may be lost, so end the process
    spdlog::error("the link to {} has failed: {}", name(), problem.what());
  }
  actors::retry_on_bad_alloc([&] { listener_.on_end(end_reason(end)); });
}

bool WorkerProcess::on_frame(std::span<const std::byte> frame) {
  FromWorker message;
  if (!decode(frame, message)) return false;
  if (auto* result = std::get_if<StepResult>(&message)) return on_result(std::move(*result));
  if (auto* rows = std::get_if<StageRows>(&message)) return on_rows(std::move(*rows));
  if (auto* measured = std::get_if<SwapMeasured>(&message)) {
    const bool is_valid = is_valid_count(measured->bytes) && is_valid_time(measured->duration_us);
    if (is_valid) listener_.on_swap(*measured);
    return is_valid;
  }
  if (auto* loaded = std::get_if<actors::AdapterLoaded>(&message)) {
    {
      const std::lock_guard lock(mutex_);
      --num_loading_;
      if (loaded->facts) loaded_adapters_.insert(loaded->adapter);
    }
    listener_.on_adapter(std::move(*loaded));
    return true;
  }
  if (auto* failed = std::get_if<actors::DeviceFailed>(&message)) {
    problem_ = std::move(*failed);
    problem_->memory_lost = true;
    {
      const std::lock_guard lock(mutex_);
      problem_->without_progress &= !has_ended_a_step_ && !sent_.empty();
    }
    // From another host also comes the news that the process has crashed there.
    if (problem_->process != actors::ProcessEnd::died) problem_->process = actors::ProcessEnd::none;
  }
  return false;
}

bool WorkerProcess::on_result(StepResult result) {
  SentStep step;
  {
    const std::lock_guard lock(mutex_);
    if (Status valid = checks_.check(result); !valid) {
      problem_ =
          actors::DeviceFailed{std::move(valid.error()), !has_ended_a_step_, true, actors::ProcessEnd::died, true};
      return false;
    }
    const TimeUs now = actors::now_us();
    if (config_.joins != nullptr) {  // another host has another clock
      result.started_us = std::max<TimeUs>(0, now - (result.finished_us - result.started_us));
      result.finished_us = now;
    }
    deadlines_->ended(result.step, now);
    has_ended_a_step_ = true;
    step = sent_.front();
    sent_.pop_front();
  }
  if (trace::is_on(config_.trace)) trace_step(result, step);
  listener_.on_result(std::move(result));
  return true;
}

bool WorkerProcess::on_rows(StageRows rows) {
  if (config_.stages == nullptr) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!checks_.is_in_flight(rows.step)) return false;
  }
  return config_.stages->pass(config_.start.rank, std::move(rows));
}

std::optional<TimeUs> WorkerProcess::before_wait() {
  constexpr TimeUs kMaxLateUs = 500'000;
  const std::lock_guard lock(mutex_);
  const TimeUs now = actors::now_us();
  // If this thread wakes more than kMaxLateUs late, this process was stopped, and perhaps the worker process too.
  if (waits_until_ && now > *waits_until_ + kMaxLateUs) deadlines_->paused(now - waits_since_);
  waits_since_ = now;
  waits_until_.reset();
  const auto deadline = deadlines_->next();
  if (!deadline) return std::nullopt;
  if (now < deadline->at_us) return waits_until_ = deadline->at_us;
  // The socket may hold unread bytes of the result, so check once more before giving up.
  const std::uint64_t received = channel_->num_received();
  const bool was_looked_for = std::exchange(overdue_, deadline->step) == deadline->step;
  if (std::exchange(received_at_overdue_, received) != received || !was_looked_for) return deadline->at_us;
  deadlines_->gave_up();
  problem_ = actors::DeviceFailed{
      {ErrorCode::device_failed, name() + " hangs: step " + std::to_string(deadline->step) + " has not ended within " +
                                     std::to_string(deadline->allowed_us / 1000) + " ms"},
      !has_ended_a_step_,
      config_.memory == nullptr,
      actors::ProcessEnd::hung,
      true};
  channel_->close();
  return std::nullopt;
}

void WorkerProcess::trace_step(const StepResult& result, const SentStep& step) const {
  config_.trace->span(trace::Row::device, "step", result.started_us, result.finished_us,
                      {{"step", static_cast<std::int64_t>(result.step)},
                       {"rows", step.num_rows},
                       {"tokens", step.num_tokens},
                       {"failed", result.error.has_value() ? 1 : 0}},
                      {}, traced_as_);
}

actors::DeviceFailed WorkerProcess::end_reason(FrameChannel::End end) {
  const std::lock_guard lock(mutex_);
  if (problem_) return *problem_;
  // Memory of a process that failed by its own fault may hold wrong data.
  const auto failed = [&](const std::string& what, actors::ProcessEnd process, bool was_sound) {
    // If a process ends before its first step was sent, or is killed from outside, a restart may make progress.
    const bool without_progress = !has_ended_a_step_ && !sent_.empty() && !was_sound;
    const bool memory_lost = config_.memory == nullptr || !was_sound;
    return actors::DeviceFailed{
        {ErrorCode::device_failed, name() + " " + what}, without_progress, memory_lost, process, !was_sound};
  };
  if (is_stopped_) return failed("hangs: it was stopped by a signal", actors::ProcessEnd::hung, true);
  if (end == FrameChannel::End::closed) {
    peer_->kill();  // the process may have closed only its end of the link
    const PeerEnd ended = end_.get();
    return failed(ended.how, actors::ProcessEnd::died, ended.was_killed);
  }
  if (end == FrameChannel::End::too_long) {
    return failed("has sent a message longer than " + std::to_string(channel_->longest() >> 20) + " MiB",
                  actors::ProcessEnd::died, false);
  }
  return failed("has sent data that is not a message", actors::ProcessEnd::died, false);
}

}  // namespace pagoda::device_link
