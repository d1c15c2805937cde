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
  std::int32_t num_threads = 1;  ///< of each kind
  /// Items of a grammar that a turn of a job may look at: about a millisecond.
  std::uint64_t work_of_turn = 40'000;
};

/// What became of a job.
struct MaskAnswer {
  RequestId request = 0;
  SequenceId sequence = 0;
  std::optional<MadeMask> made;  ///< none: it takes long, and another answer follows
  std::optional<Error> error;    ///< it cannot be made
};

/// Threads that make masks, so that neither the scheduler nor a step waits for those that take long. A job has its
/// first turn on a quick thread and goes on, in turns with others, on a slow one, which gives way to everything else
/// that the CPU has to do. Jobs of one grammar run one at a time, since they share what is known of it.
class MaskThreads {
 public:
  /// `notify`: called from any thread when take_answers() has something after it had nothing.
  MaskThreads(MaskThreadsConfig config, std::function<void()> notify);
  /// Waits for the jobs that run; those that wait are dropped.
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  /// `wait`: how long the step waits for these jobs and those before. All of them together have so much time on each
  /// quick thread, estimated by their work: what is not made then is late for the step and need not hurry.
  void submit(std::vector<MaskJob> jobs, std::chrono::microseconds wait);
  /// Throws where a thread has failed.
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
  std::uint64_t quick_work_left_ = 0;  ///< of the jobs that were submitted
  Lane quick_;
  Lane slow_;
  std::set<const void*> busy_;  ///< keys of the jobs that run
  std::vector<MaskAnswer> answers_;
  bool stops_ = false;
  std::exception_ptr failure_;  ///< of a thread
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::scheduling
