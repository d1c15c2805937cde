#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "apps/batch/batch_request.hpp"
#include "apps/batch/batch_results.hpp"
#include "apps/batch/line_reader.hpp"
#include "apps/interrupts.hpp"
#include "apps/progress.hpp"
#include "io/http/local_api.hpp"

namespace pagoda::apps::batch {

/// Wakes a thread that waits in poll. Thread-safe.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  void call();
  /// Clears the pending calls.
  void reset();
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Reports of other threads to a run. May outlive the run.
struct BatchEvents {
  WakeUp wake_up;
  std::atomic<bool> engine_has_ended = false;
};

/// Runs the requests of a batch with a bounded number of them live, and writes their results in input order.
class BatchRun {
 public:
  enum class End { complete, interrupted, engine_has_ended, failed };

  /// `max_live`: number of requests that may be without a written result.
  BatchRun(http::LocalApi& api, LineReader& lines, BatchParser& parser, BatchResults& results, BatchEvents& events,
           Interrupts& interrupts, std::size_t max_live);

  /// Runs the batch on the main thread. Writes to standard error what has failed.
  End run();

 private:
  using Clock = std::chrono::steady_clock;

  /// A request whose result has not been written.
  struct Slot {
    BatchRequest request;
    std::size_t num_bytes = 0;  ///< size of its line
    int num_tries = 0;
    std::optional<http::LocalAnswer> answer = {};
    Clock::time_point due = {};  ///< time of the next try, or time at which the answer counts
    bool waits_to_retry = false;
  };
  using SharedSlot = std::shared_ptr<Slot>;
  /// Answers that the API's thread has given and the run has not taken.
  struct Inbox {
    std::mutex mutex;
    std::vector<std::pair<SharedSlot, http::LocalAnswer>> answers;
  };

  End run_all();
  bool has_room() const;
  void start_more();
  void post(const SharedSlot& slot);
  void take_answers();
  void retry();
  Status write_ready();
  void wait();

  http::LocalApi& api_;
  LineReader& lines_;
  BatchParser& parser_;
  BatchResults& results_;
  BatchEvents& events_;
  Interrupts& interrupts_;
  const std::size_t max_live_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::deque<SharedSlot> slots_;  ///< in input order
  std::size_t live_bytes_ = 0;    ///< bytes of the slots
  std::size_t num_delayed_ = 0;   ///< number of slots with a `due` time
  bool is_input_over_ = false;
  std::int64_t tokens_ = 0;
  ProgressBar progress_;
};

}  // namespace pagoda::apps::batch
