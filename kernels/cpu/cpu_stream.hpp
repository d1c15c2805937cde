#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/device.hpp"

namespace pagoda::kernels {

/// A stream of the CPU device: one thread that runs its queue in order and sleeps while it is empty. The destructor
/// runs what is left in the queue. A function that throws inside the stream is a broken invariant: the process ends
/// with a message, since the steps after it would compute on garbage.
class CpuStream final : public Stream {
 public:
  /// `on_start` runs first on the stream's thread.
  explicit CpuStream(const std::string& name, std::function<void()> on_start = {});
  ~CpuStream() override;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void submit(std::function<void()> issue) override;
  void on_complete(std::function<void()> callback) override;
  std::shared_ptr<Event> record() override;
  void wait(std::shared_ptr<Event> event) override;
  void synchronize() override;

 private:
  void enqueue(std::function<void()> work);
  void run_queue();

  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<std::function<void()>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace pagoda::kernels
