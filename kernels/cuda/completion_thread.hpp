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
/// cudaLaunchHostFunc does the same, but drops its functions when the device fails, so that whatever waits for them
/// waits for ever.
class CompletionThread {
 public:
  /// Calls `failed` for an event that ends in an error, before the callback of that event runs.
  CompletionThread(int device_index, const std::string& name, std::function<void(const Status&)> failed);
  /// Runs the remaining callbacks.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  /// Takes ownership of the recorded event; null: the callback waits for nothing.
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
