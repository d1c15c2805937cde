#include "kernels/cpu/cpu_stream.hpp"

#include <atomic>
#include <exception>
#include <utility>

#if defined(__linux__)
#include <pthread.h>
#endif

#include "kernels/result.hpp"

namespace pagoda::kernels {
namespace {

class CpuEvent final : public Event {
 public:
  bool finished() const override { return finished_.load(std::memory_order_acquire); }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    signalled_.wait(lock, [this] { return finished(); });
  }

  void signal() {
    {
      const std::lock_guard lock(mutex_);
      finished_.store(true, std::memory_order_release);
    }
    signalled_.notify_all();
  }

 private:
  std::atomic<bool> finished_{false};
  std::mutex mutex_;
  std::condition_variable signalled_;
};

void run_without_exceptions(const std::function<void()>& callback) {
  try {
    callback();
  } catch (const std::exception& error) {
    PAGODA_ASSERT(false, error.what());
  } catch (...) {
    PAGODA_ASSERT(false, "a callback of a CPU stream threw something that is not a std::exception");
  }
}

std::string what_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it threw something that is not a std::exception";
  }
}

void name_this_thread(const std::string& name) {
#if defined(__linux__)
  constexpr std::size_t kMaxNameBytes = 15;
  pthread_setname_np(pthread_self(), name.substr(0, kMaxNameBytes).c_str());
#else
  static_cast<void>(name);
#endif
}

}  // namespace

CpuStream::CpuStream(const std::string& name, std::function<void()> on_start) {
  thread_ = std::thread([this, name, on_start = std::move(on_start)] {
    name_this_thread(name);
    if (on_start) on_start();
    run_queue();
  });
}

CpuStream::~CpuStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  not_empty_.notify_one();
  thread_.join();
}

void CpuStream::submit(std::function<void()> issue) {
  enqueue({std::move(issue), true});
}

void CpuStream::on_complete(std::function<void()> callback) {
  enqueue({std::move(callback)});
}

std::shared_ptr<Event> CpuStream::record() {
  auto event = std::make_shared<CpuEvent>();
  enqueue({[event] { event->signal(); }});
  return event;
}

void CpuStream::wait(std::shared_ptr<Event> event) {
  enqueue({[event = std::move(event)] { event->synchronize(); }});
}

Status CpuStream::status() const {
  if (!has_failed_) return {};
  return fail(ErrorCode::internal, "the CPU stream has failed: " + what_of(thrown_));
}

/// Does not allocate, so that owners of memory that the stream uses can always wait before they free it.
void CpuStream::synchronize() {
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [this] { return queue_.empty() && !is_running_; });
}

void CpuStream::enqueue(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(entry));
  }
  not_empty_.notify_one();
}

void CpuStream::run_submitted(const std::function<void()>& work) {
  if (has_failed_) return;
  try {
    work();
  } catch (...) {
    thrown_ = std::current_exception();
    has_failed_ = true;
  }
}

void CpuStream::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    not_empty_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const Entry entry = std::move(queue_.front());
      queue_.pop_front();
      is_running_ = true;
      lock.unlock();
      entry.is_submitted ? run_submitted(entry.run) : run_without_exceptions(entry.run);
    }  // the captures of the work are destroyed before the lock is taken again
    lock.lock();
    is_running_ = false;
    if (queue_.empty()) empty_.notify_all();
  }
}

}  // namespace pagoda::kernels
