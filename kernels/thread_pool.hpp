#pragma once

#include <cstdint>
#include <memory>

namespace pagoda::kernels {

/// Threads that compute one parallel region at a time. The caller takes part, so a pool of 1 has no thread of its own.
/// Workers spin briefly between regions, then park: an idle pool uses no CPU. Regions must not nest; concurrent callers
/// are serialised.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls body(task) once for each task in [0, num_tasks), on any thread, in any order; returns when all have returned.
  template <class Body>
  void parallel_for(std::int64_t num_tasks, const Body& body) {
    run(num_tasks, [](const void* context, std::int64_t task) { (*static_cast<const Body*>(context))(task); }, &body);
  }

 private:
  using Task = void (*)(const void* context, std::int64_t task);
  void run(std::int64_t num_tasks, Task task, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels
