#include "tests/support/cuda_emulator/streams.hpp"

#include <chrono>
#include <cstdio>
#include <set>
#include <utility>

#include "tests/support/cuda_emulator/cuda_emulator.hpp"

namespace cuda_emulator {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<EmulatedStream*> streams;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

thread_local EmulatedStream* captured_stream = nullptr;

}  // namespace

void Moment::reach() {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  changed_.notify_all();
}

void Moment::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

bool Moment::reached() {
  const std::lock_guard lock(mutex_);
  return reached_;
}

double Moment::seconds() {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

EmulatedStream::EmulatedStream() : thread_([this] { run(); }) {
  const std::lock_guard lock(registry().mutex);
  registry().streams.insert(this);
}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().streams.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EmulatedStream::add(Work work) {
  if (capturing_) {
    captured_.push_back(std::move(work));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::shared_ptr<Moment> EmulatedStream::add_moment() {
  auto moment = std::make_shared<Moment>();
  add([moment](BlockRunner&) { moment->reach(); });
  return moment;
}

bool EmulatedStream::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void EmulatedStream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

cudaError_t EmulatedStream::begin_capture() {
  if (capturing_) return cudaErrorIllegalState;
  capturing_ = true;
  broken_ = false;
  captured_.clear();
  captured_stream = this;
  return cudaSuccess;
}

cudaError_t EmulatedStream::end_capture(EmulatedGraph** graph) {
  *graph = nullptr;
  if (!capturing_) return cudaErrorIllegalState;
  capturing_ = false;
  captured_stream = nullptr;
  if (broken_) return cudaErrorStreamCaptureInvalidated;
  *graph = new EmulatedGraph{std::move(captured_)};
  return cudaSuccess;
}

void EmulatedStream::run() {
  BlockRunner runner;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      if (const int delay_us = options().delay_us; delay_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      }
      work(runner);
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

EmulatedStream& stream_of(cudaStream_t stream) {
  static EmulatedStream default_stream;
  return stream == nullptr ? default_stream : *stream;
}

void drain_all_streams() {
  const std::lock_guard lock(registry().mutex);  // no stream is destroyed meanwhile
  for (EmulatedStream* stream : registry().streams) stream->drain();
}

EmulatedStream* captured_by_this_thread() {
  return captured_stream;
}

}  // namespace cuda_emulator
