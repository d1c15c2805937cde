#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/device.hpp"

namespace pagoda::kernels {

/// A stream of the CPU device: one thread that runs its queue in order and sleeps while the queue is empty. The
/// destructor runs the rest of the queue. If submitted work throws (for example std::bad_alloc), the stream has failed:
/// it skips work submitted later, whose input would be garbage, but still runs callbacks and finishes events. A
/// callback that throws breaks an invariant: the process ends with a message.
class CpuStream final : public Stream {
 public:
  /// Starts the thread, which runs `on_start` first.
  explicit CpuStream(const std::string& name, std::function<void()> on_start = {});
  ~CpuStream() override;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void submit(std::function<void()> issue) override;
  void on_complete(std::function<void()> callback) override;
  Status status() const override;
  std::shared_ptr<Event> record() override;
  void wait(std::shared_ptr<Event> event) override;
  void synchronize() override;

 private:
  struct Entry {
    std::function<void()> run;
    bool is_submitted = false;
  };

  void enqueue(Entry entry);
  void run_submitted(const std::function<void()>& work);
  void run_queue();

  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<Entry> queue_;
  bool closing_ = false;
  bool is_running_ = false;
  std::condition_variable empty_;  ///< notified when the queue is empty and no entry runs
  std::atomic<bool> has_failed_ = false;
  std::exception_ptr thrown_;  ///< exception of the work that failed; written before has_failed_
  std::thread thread_;
};

}  // namespace pagoda::kernels
