#include "kernels/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/spin.hpp"

namespace pagoda::kernels {
/// A gate controls access to a region: the caller writes the region's fields while the gate is closed, opens the gate,
/// works, closes it and waits until every worker inside has left. A worker that wakes late finds the gate closed and
/// sleeps again, so a caller never waits for a worker that has not started.
struct ThreadPool::State {
  static constexpr std::uint32_t kOpen = 1;    // bit 0 of gate
  static constexpr std::uint32_t kInside = 2;  // added for each worker inside; the bits above bit 0 count them

  std::vector<std::thread> workers;

  // Concurrent callers run in the order of their arrival.
  std::mutex callers_mutex;
  std::condition_variable callers_turn;
  std::uint64_t next_ticket = 0;
  std::uint64_t now_serving = 0;

  // The region; written only while the gate is closed and no worker is inside.
  Task task = nullptr;
  const void* context = nullptr;
  std::int64_t num_tasks = 0;
  std::mutex failure_mutex;
  std::exception_ptr failure;  // first exception of this region
  alignas(64) std::atomic<std::int64_t> next_task{0};

  alignas(64) std::atomic<std::uint32_t> gate{0};
  alignas(64) std::atomic<std::uint64_t> generation{0};  // counts regions; workers wait for a change
  std::atomic<bool> stop{false};

  std::mutex sleep_mutex;
  std::condition_variable work_or_stop;  // workers sleep here
  std::condition_variable all_out;       // the caller sleeps here
  std::atomic<int> sleeping_workers{0};
  std::atomic<bool> caller_sleeps{false};

  void work(int thread) {
    for (;;) {
      const std::int64_t i = next_task.fetch_add(1, std::memory_order_relaxed);
      if (i >= num_tasks) return;
      try {
        task(context, i, thread);
      } catch (...) {
        fail(std::current_exception());
      }
    }
  }

  void fail(std::exception_ptr thrown) {
    const std::lock_guard lock(failure_mutex);
    if (!failure) failure = std::move(thrown);
    next_task.store(num_tasks, std::memory_order_relaxed);
  }

  bool enter() {
    std::uint32_t seen = gate.load(std::memory_order_acquire);
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + kInside, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  void leave() {
    if (gate.fetch_sub(kInside) == kInside && caller_sleeps.load()) {
      const std::lock_guard lock(sleep_mutex);
      all_out.notify_one();
    }
  }

  void worker_loop(int thread) {
    std::uint64_t seen = 0;
    while (!stop.load(std::memory_order_acquire)) {
      const auto changed = [&] { return generation.load() != seen || stop.load(); };
      if (!spin_until(changed)) {
        std::unique_lock lock(sleep_mutex);
        sleeping_workers.fetch_add(1);
        work_or_stop.wait(lock, changed);
        sleeping_workers.fetch_sub(1);
      }
      seen = generation.load();
      if (enter()) {
        work(thread);
        leave();
      }
    }
  }

  void wake_workers() {
    generation.fetch_add(1);
    if (sleeping_workers.load() > 0) {
      const std::lock_guard lock(sleep_mutex);
      work_or_stop.notify_all();
    }
  }

  void wait_until_all_are_out() {
    const auto empty = [&] { return gate.load() == 0; };
    if (spin_until(empty)) return;
    std::unique_lock lock(sleep_mutex);
    caller_sleeps.store(true);
    all_out.wait(lock, empty);
    caller_sleeps.store(false);
  }

  void wait_for_turn() {
    std::unique_lock lock(callers_mutex);
    const std::uint64_t ticket = next_ticket++;
    callers_turn.wait(lock, [&] { return now_serving == ticket; });
  }

  void end_turn() {
    bool others_wait = false;
    {
      const std::lock_guard lock(callers_mutex);
      ++now_serving;
      others_wait = now_serving != next_ticket;
    }
    if (others_wait) callers_turn.notify_all();
  }

  void end_workers() {
    {
      const std::lock_guard lock(sleep_mutex);
      stop.store(true);
    }
    work_or_stop.notify_all();
    for (auto& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int num_threads, std::function<void(int thread)> on_start) : state_(std::make_unique<State>()) {
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      state_->workers.emplace_back([state = state_.get(), thread, on_start] {
        if (on_start) on_start(thread);
        state->worker_loop(thread);
      });
    }
  } catch (...) {
    state_->end_workers();  // a thread that is not joined would end the process
    throw;
  }
}

ThreadPool::~ThreadPool() {
  state_->end_workers();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run(std::int64_t num_tasks, Task task, const void* context) {
  if (num_tasks <= 0) return;
  State& s = *state_;
  s.wait_for_turn();
  s.task = task;
  s.context = context;
  s.num_tasks = num_tasks;
  s.next_task.store(0, std::memory_order_relaxed);
  if (s.workers.empty() || num_tasks == 1) {
    s.work(0);
  } else {
    s.gate.store(State::kOpen, std::memory_order_release);
    s.wake_workers();
    s.work(0);
    s.gate.fetch_and(~State::kOpen);
    s.wait_until_all_are_out();
  }
  const auto failure = std::exchange(s.failure, nullptr);
  s.end_turn();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pagoda::kernels
