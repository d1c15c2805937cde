#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Runs callbacks after their events, in order, on its own thread, which sleeps while the device works.
/// cudaLaunchHostFunc also runs functions in stream order, but drops them when the device fails; a thread that waits
/// for such a function would wait for ever.
class CompletionThread {
 public:
  /// Calls `failed` for an event that ends in an error, before the callback of that event runs.
  CompletionThread(int device_index, const std::string& name, std::function<void(const Status&)> failed);
  /// Runs the remaining callbacks.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  /// Adds a callback that runs after `event`, and takes ownership of the event, which has been recorded. If `event` is
  /// null, the callback waits only for the callbacks before it.
  void add(cudaEvent_t event, std::function<void()> callback);
  /// Blocks until every callback added so far has returned.
  void drain();

 private:
  struct Item {
    cudaEvent_t event;
    std::function<void()> callback;
  };
  void run();

  int device_index_;
  std::string name_;
  std::function<void(const Status&)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace pagoda::kernels::cuda
