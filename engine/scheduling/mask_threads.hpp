#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "engine/scheduling/mask_queue.hpp"
#include "kernels/result.hpp"

namespace pagoda::scheduling {

struct MaskThreadsConfig {
  std::int32_t num_threads = 1;  ///< number of quick threads, and of slow threads
  /// Maximum number of grammar items that one turn of a job reads: about a millisecond.
  std::uint64_t max_work_per_turn = 40'000;
};

/// The answer to a job.
struct MaskAnswer {
  RequestId request = 0;
  SequenceId sequence = 0;
  /// Empty without an error: the job takes long, and another answer follows.
  std::optional<MadeMask> made;
  std::optional<Error> error;  ///< set if the mask cannot be made
};

/// Threads that make masks, so that neither the scheduler nor a step waits for slow masks. A job has its first turn on
/// a quick thread. It continues, in turns with others, on a slow thread, which has a low priority on the CPU. Jobs of
/// one grammar run one at a time, since they share state of the grammar.
class MaskThreads {
 public:
  /// `notify` is called from any thread when take_answers() has answers after it had none, or when a thread has failed.
  MaskThreads(MaskThreadsConfig config, std::function<void()> notify);
  /// Waits for running jobs, and drops waiting jobs.
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  /// Adds jobs. `wait` is how long the step waits for these jobs and earlier ones. All of them together have this time
  /// on each quick thread, estimated by their work. Jobs that are not done then are late for the step, and continue on
  /// slow threads.
  void submit(std::vector<MaskJob> jobs, std::chrono::microseconds wait);
  /// Throws the exception of a thread if one has failed.
  std::vector<MaskAnswer> take_answers();

 private:
  struct Lane {
    MaskQueue queue;
    std::condition_variable wakes;
    bool is_slow = false;
  };

  void work(Lane& lane);
  void run(MaskJob job, Lane& lane, std::unique_lock<std::mutex>& lock);

  const MaskThreadsConfig config_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::uint64_t quick_work_left_ = 0;  ///< work that is left to the submitted jobs
  Lane quick_;
  Lane slow_;
  std::set<const void*> busy_;  ///< keys of running jobs
  std::vector<MaskAnswer> answers_;
  bool stops_ = false;
  std::exception_ptr failure_;  ///< exception of a thread
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::scheduling
