#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_emulator/types.hpp"
#include "tests/support/cuda_emulator/block_runner.hpp"

namespace cuda_emulator {

/// A piece of a stream's work, run on the stream's thread.
using Work = std::function<void(BlockRunner&)>;

/// A point in a stream's order, reached once.
class Moment {
 public:
  void reach();
  void wait();
  bool reached();
  double seconds();  ///< time at which it was reached; all moments use one clock

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  double seconds_ = 0;
};

class EmulatedEvent {
 public:
  std::mutex mutex;
  std::shared_ptr<Moment> moment;  ///< moment of the last record; null = never recorded
};

class EmulatedGraph {
 public:
  std::vector<Work> nodes;
};

class EmulatedGraphExec {
 public:
  std::vector<Work> nodes;
};

/// One thread that runs its queue in order.
class EmulatedStream {
 public:
  EmulatedStream();
  ~EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  /// Queues the work, or records it while capturing.
  void add(Work work);
  std::shared_ptr<Moment> add_moment();
  bool idle();
  void drain();

  // Only one host thread at a time captures the stream.
  cudaError_t begin_capture();
  cudaError_t end_capture(EmulatedGraph** graph);
  bool capturing() const { return capturing_; }
  bool capture_is_broken() const { return broken_; }
  void break_capture() { broken_ = true; }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false;
  bool closing_ = false;
  bool capturing_ = false;
  bool broken_ = false;
  std::vector<Work> captured_;
  std::thread thread_;
};

/// Returns the stream behind a handle: the default stream for null.
EmulatedStream& stream_of(cudaStream_t stream);
void drain_all_streams();
/// Returns the stream that the calling thread captures, or null.
EmulatedStream* captured_by_this_thread();

/// Keeps the first problem, prints it, and makes `error` the result of every later call.
void report_problem(cudaError_t error, const std::string& text);
cudaError_t sticky_error();

}  // namespace cuda_emulator
