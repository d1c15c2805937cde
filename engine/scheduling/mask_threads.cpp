#include "engine/scheduling/mask_threads.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#ifdef __linux__
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace pagoda::scheduling {
namespace {

/// Number of grammar items that a thread reads in a microsecond.
constexpr std::uint64_t kWorkPerUs = 40;

void name_thread(bool is_slow) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), is_slow ? "pagoda-masks-sl" : "pagoda-masks");
  constexpr int kLowPriority = 15;
  if (is_slow) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowPriority);
#else
  static_cast<void>(is_slow);
#endif
}

}  // namespace

MaskThreads::MaskThreads(MaskThreadsConfig config, std::function<void()> notify)
    : config_(config), notify_(std::move(notify)) {
  slow_.is_slow = true;
  for (std::int32_t i = 0; i < config.num_threads; ++i) {
    threads_.emplace_back([this] { work(quick_); });
    threads_.emplace_back([this] { work(slow_); });
  }
}

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  quick_.wakes.notify_all();
  slow_.wakes.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskThreads::submit(std::vector<MaskJob> jobs, std::chrono::microseconds wait) {
  {
    const std::lock_guard lock(mutex_);
    quick_work_left_ =
        kWorkPerUs * static_cast<std::uint64_t>(wait.count()) * static_cast<std::uint64_t>(config_.num_threads);
    for (MaskJob& job : jobs) quick_.queue.push(std::move(job));
  }
  quick_.wakes.notify_all();
}

std::vector<MaskAnswer> MaskThreads::take_answers() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(answers_, {});
}

void MaskThreads::work(Lane& lane) {
  name_thread(lane.is_slow);
  std::unique_lock lock(mutex_);
  try {
    while (!stops_) {
      if (auto job = lane.queue.pop(busy_)) {
        run(std::move(*job), lane, lock);
      } else {
        lane.wakes.wait(lock);
      }
    }
  } catch (...) {  // for example, there is no memory for the state of jobs
    if (!lock.owns_lock()) lock.lock();
    failure_ = std::current_exception();
    stops_ = true;
    lock.unlock();
    notify_();
  }
}

void MaskThreads::run(MaskJob job, Lane& lane, std::unique_lock<std::mutex>& lock) {
  if (!job.masks->is_wanted()) return;
  const void* const key = job.key();
  busy_.insert(key);
  std::uint64_t may_take = config_.max_work_per_turn;
  if (!lane.is_slow) {
    may_take = std::min(may_take, quick_work_left_);
    quick_work_left_ -= may_take;
  }
  lock.unlock();
  std::uint64_t left = may_take;
  bool is_made = false;
  std::optional<Error> error;
  try {
    is_made = job.run(left);
  } catch (const std::exception& problem) {
    error = Error{ErrorCode::internal, std::string("a mask could not be made: ") + problem.what()};
  } catch (...) {
    error = Error{ErrorCode::internal, "a mask could not be made: unknown exception"};
  }
  const auto now = std::chrono::steady_clock::now();
  lock.lock();
  busy_.erase(key);
  if (!lane.is_slow) quick_work_left_ += left;
  for (Lane* each : {&quick_, &slow_}) {
    each->queue.charge(job, may_take - left, now);
    if (!each->queue.empty()) each->wakes.notify_one();  // a job may wait for this key
  }
  MaskAnswer answer{job.request, job.sequence, std::nullopt, std::move(error)};
  const bool goes_on = !answer.error && !is_made;
  if (is_made) answer.made = std::move(job.made);
  if (goes_on) {
    slow_.queue.push(std::move(job));
    slow_.wakes.notify_one();
    if (lane.is_slow) return;
  }
  answers_.push_back(std::move(answer));
  if (answers_.size() > 1) return;
  lock.unlock();
  notify_();
  lock.lock();
}

}  // namespace pagoda::scheduling
