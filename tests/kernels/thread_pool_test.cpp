#include "kernels/thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <time.h>

namespace pagoda::kernels {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST(ThreadPoolStartTest, RunsTheStartFunctionOnceOnEachThreadOfItsOwn) {
  std::mutex mutex;
  std::map<int, std::thread::id> started;
  {
    ThreadPool pool(4, [&](int thread) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(started.emplace(thread, std::this_thread::get_id()).second);
    });
    pool.parallel_for(100, [&](std::int64_t, int thread) {
      if (thread == 0) return;
      const std::lock_guard lock(mutex);
      EXPECT_EQ(started.at(thread), std::this_thread::get_id());
    });
  }
  ASSERT_EQ(started.size(), 3U);
  EXPECT_EQ(started.begin()->first, 1);
  EXPECT_EQ(started.rbegin()->first, 3);
}

/// A function that can be copied a few times only.
struct FewCopies {
  explicit FewCopies(int copies) : copies_left(std::make_shared<int>(copies)) {}
  FewCopies(const FewCopies& other) : copies_left(other.copies_left) {
    if (--*copies_left < 0) throw std::runtime_error("no copy is left");
  }
  FewCopies(FewCopies&&) noexcept = default;
  FewCopies& operator=(const FewCopies&) = delete;
  FewCopies& operator=(FewCopies&&) = delete;
  ~FewCopies() = default;
  void operator()(int) const {}

  std::shared_ptr<int> copies_left;
};

TEST(ThreadPoolStartTest, AThreadThatCannotStartEndsThoseBeforeIt) {
  std::function<void(int)> on_start = FewCopies(2);
  EXPECT_THROW(ThreadPool(4, std::move(on_start)), std::runtime_error) << "the process ends where a thread is left";
}

TEST_P(ThreadPoolTest, RunsEachTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const std::int64_t num_tasks : {0, 1, 2, 3, 64, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(num_tasks));
    pool.parallel_for(num_tasks, [&](std::int64_t task) { runs[static_cast<std::size_t>(task)].fetch_add(1); });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(ThreadPoolTest, MakesTheResultsOfARegionVisibleToTheCallerAndToTheNextRegion) {
  ThreadPool pool(GetParam());
  constexpr std::int64_t kTasks = 37;
  std::vector<std::int64_t> values(kTasks, 0);
  for (int region = 1; region <= 2000; ++region) {
    pool.parallel_for(kTasks, [&](std::int64_t task) { values[static_cast<std::size_t>(kTasks - 1 - task)] += 1; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), region * kTasks);
  }
}

TEST_P(ThreadPoolTest, GivesTasksThatRunAtOnceDifferentThreadNumbers) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> busy(static_cast<std::size_t>(GetParam()));
  std::atomic<bool> shared = false;
  pool.parallel_for(500, [&](std::int64_t, int thread) {
    ASSERT_LT(thread, GetParam());
    if (busy[static_cast<std::size_t>(thread)].fetch_add(1) != 0) shared = true;
    busy[static_cast<std::size_t>(thread)].fetch_sub(1);
  });
  EXPECT_FALSE(shared);
}

TEST_P(ThreadPoolTest, ServesConcurrentCallersOneAfterTheOther) {
  ThreadPool pool(GetParam());
  std::atomic<int> regions_running = 0;
  std::atomic<bool> overlapped = false;
  std::atomic<std::int64_t> tasks_run = 0;
  const auto call_often = [&] {
    for (int i = 0; i < 200; ++i) {
      std::atomic<int> tasks_of_region = 0;
      pool.parallel_for(8, [&](std::int64_t) {
        if (tasks_of_region.fetch_add(1) == 0 && regions_running.fetch_add(1) != 0) overlapped = true;
        tasks_run.fetch_add(1);
        if (tasks_of_region.fetch_add(100) / 100 == 7) regions_running.fetch_sub(1);
      });
    }
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) callers.emplace_back(call_often);
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(tasks_run, 3 * 200 * 8);
  EXPECT_FALSE(overlapped);
}

TEST_P(ThreadPoolTest, WakesWorkersThatSleep) {
  ThreadPool pool(GetParam());
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> count = 0;
    pool.parallel_for(100, [&](std::int64_t) { count.fetch_add(1); });
    EXPECT_EQ(count, 100);
  }
}

TEST_P(ThreadPoolTest, HandsOutWhatATaskThrows) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    const auto fail = [&] {
      pool.parallel_for(100, [](std::int64_t task) {
        if (task % 40 == 7) throw std::runtime_error("task " + std::to_string(task));
      });
    };
    EXPECT_THROW(fail(), std::runtime_error);
    std::atomic<int> runs = 0;
    pool.parallel_for(100, [&](std::int64_t) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 16));

TEST(ThreadPoolIdleTest, UsesNoCpuWhenThereIsNoWork) {
  ThreadPool pool(4);
  pool.parallel_for(8, [](std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  };
  const auto before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ns() - before, 10'000'000) << "an idle pool must sleep";
}

}  // namespace
}  // namespace pagoda::kernels
