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

/// Runs callbacks behind events, in order, on a thread of its own that sleeps while the device works.
/// cudaLaunchHostFunc would do the same, but drops its functions when the device fails, and whoever waits for them
/// waits for ever.
class CompletionThread {
 public:
  /// `failed` is told of an event that ended in an error, before its callback runs.
  CompletionThread(int device_index, const std::string& name, std::function<void(const Status&)> failed);
  /// Runs what is left.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  /// Takes the recorded event; null: there is nothing to wait for.
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
