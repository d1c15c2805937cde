#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace pagoda::kernels {

/// Threads that compute one parallel region at a time. The calling thread takes part, so a pool of 1 starts no thread.
/// Workers spin briefly between regions, then sleep, so an idle pool uses no CPU. Regions must not nest; concurrent
/// callers are serialised.
class ThreadPool {
 public:
  /// Runs `on_start(thread)` once on each thread that the pool starts (1 to num_threads - 1), before its first task.
  explicit ThreadPool(int num_threads, std::function<void(int thread)> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls body(task) or body(task, thread) once for each task in [0, num_tasks), on any thread, in any order; returns
  /// when all calls have returned. `thread` is in [0, num_threads()); tasks that run at the same time have different
  /// values, so it can index scratch memory. If a body throws, tasks that have not started are skipped, and this call
  /// rethrows the first exception.
  template <class Body>
  void parallel_for(std::int64_t num_tasks, const Body& body) {
    run(
        num_tasks,
        [](const void* context, std::int64_t task, int thread) {
          const auto& call = *static_cast<const Body*>(context);
          if constexpr (std::is_invocable_v<const Body&, std::int64_t, int>) {
            call(task, thread);
          } else {
            call(task);
          }
        },
        &body);
  }

 private:
  using Task = void (*)(const void* context, std::int64_t task, int thread);
  void run(std::int64_t num_tasks, Task task, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels
