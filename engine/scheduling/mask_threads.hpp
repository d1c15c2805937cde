#pragma once

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
  /// Items of a grammar that a job may look at while a step waits for it: about a millisecond.
  std::uint64_t quick_work = 40'000;
};

/// What became of a job.
struct MaskAnswer {
  RequestId request = 0;
  SequenceId sequence = 0;
  std::optional<MadeMask> made;  ///< none: it takes long, and another answer follows
  std::optional<Error> error;    ///< it cannot be made
};

/// Threads that make masks, so that neither the scheduler nor a step waits for those that take long. A job begins on a
/// quick thread; after quick_work it goes on, in turns with others, on a slow one, which gives way to everything else
/// that the CPU has to do. Jobs of one grammar run one at a time, since they share what is known of it.
class MaskThreads {
 public:
  /// `notify`: called from any thread when take_answers() has something after it had nothing.
  MaskThreads(MaskThreadsConfig config, std::function<void()> notify);
  /// Waits for the jobs that run; those that wait are dropped.
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  void submit(std::vector<MaskJob> jobs);
  /// Throws where a thread has failed.
  std::vector<MaskAnswer> take_answers();

 private:
  struct Lane {
    MaskQueue queue;
    std::condition_variable wakes;
    std::uint64_t work = 0;  ///< of a job's turn
    bool is_slow = false;
  };

  void work(Lane& lane);
  void run(MaskJob job, Lane& lane, std::unique_lock<std::mutex>& lock);

  std::function<void()> notify_;
  std::mutex mutex_;
  Lane quick_;
  Lane slow_;
  std::set<const void*> busy_;  ///< keys of the jobs that run
  std::vector<MaskAnswer> answers_;
  bool stops_ = false;
  std::exception_ptr failure_;  ///< of a thread
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::scheduling
