#include "kernels/cuda/completion_thread.hpp"

#include <utility>

#if defined(__linux__)
#include <pthread.h>
#endif

#include "kernels/cuda/cuda_check.hpp"

namespace pagoda::kernels::cuda {

CompletionThread::CompletionThread(int device_index, const std::string& name, std::function<void(const Status&)> failed)
    : device_index_(device_index), name_(name), failed_(std::move(failed)), thread_([this] { run(); }) {}

CompletionThread::~CompletionThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CompletionThread::add(cudaEvent_t event, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({event, std::move(callback)});
  }
  changed_.notify_all();
}

void CompletionThread::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return items_.empty() && !busy_; });
}

void CompletionThread::run() {
#if defined(__linux__)
  constexpr std::size_t kMaxNameBytes = 15;
  pthread_setname_np(pthread_self(), name_.substr(0, kMaxNameBytes).c_str());
#endif
  cudaSetDevice(device_index_);  // a failure is reported by the events
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !items_.empty(); });
    if (items_.empty()) return;
    {
      const Item item = std::move(items_.front());
      items_.pop_front();
      busy_ = true;
      lock.unlock();
      if (item.event != nullptr) {
        const Status finished = check(cudaEventSynchronize(item.event), "cudaEventSynchronize");
        if (!finished) failed_(finished);
        cudaEventDestroy(item.event);
      }
      item.callback();
    }  // the callback and its captures are destroyed before the lock is taken again
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace pagoda::kernels::cuda
