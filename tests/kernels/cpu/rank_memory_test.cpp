#include "kernels/cpu/rank_memory.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kFloats = 100'000;

float value(std::int64_t step, int rank, std::int64_t i) {
  return static_cast<float>((step * 7 + rank * 13 + i) % 101) * 0.37F;
}

/// One rank: a device with one thread, and its connection.
class Rank {
 public:
  Rank(RankMemory& memory, int rank) : ranks(memory.communicator(rank)) {}

  /// Returns whether a step with sums and rows of all ranks has the right results.
  bool run_step(std::int64_t step) {
    if (!ranks->begin_step(step)) return false;
    const int count = ranks->num_ranks();
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{1000}, kFloats}) {
      std::vector<float> out(static_cast<std::size_t>(size), 1.0F);
      for (const bool accumulate : {false, true}) {
        float* part = ranks->part(size);
        for (std::int64_t i = 0; i < size; ++i) part[i] = value(step, ranks->rank(), i);
        if (!ranks->all_reduce(device->ops(), *stream, size, out.data(), accumulate)) return false;
      }
      for (std::int64_t i = 0; i < size; ++i) {
        float sum = 0.0F;
        for (int rank = 0; rank < count; ++rank) sum += value(step, rank, i);
        if (out[static_cast<std::size_t>(i)] != sum + sum) return false;
      }
    }
    constexpr std::int64_t kRows = 5;
    std::vector<std::int64_t> widths;
    for (int rank = 0; rank < count; ++rank) widths.push_back(rank == 0 ? 3 : 20 + rank);
    const std::int64_t own = widths[static_cast<std::size_t>(ranks->rank())];
    float* part = ranks->part(kRows * own);
    for (std::int64_t i = 0; i < kRows * own; ++i) part[i] = value(step, ranks->rank(), i);
    std::vector<float> out(static_cast<std::size_t>(kRows * std::reduce(widths.begin(), widths.end())));
    if (!ranks->all_gather(device->ops(), *stream, kRows, widths, out.data())) return false;
    auto next = out.begin();
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (int rank = 0; rank < count; ++rank) {
        const std::int64_t width = widths[static_cast<std::size_t>(rank)];
        for (std::int64_t i = 0; i < width; ++i) {
          if (*next++ != value(step, rank, row * width + i)) return false;
        }
      }
    }
    return true;
  }

  std::shared_ptr<Device> device = create_cpu_device({.num_threads = 1, .isa = ""}).value();
  std::unique_ptr<Stream> stream = device->create_stream("rank").value();
  std::unique_ptr<Communicator> ranks;
};

TEST(RankMemory, GivesEachRankTheSumsAndTheRowsOfAll) {
  for (const int count : {2, 3, 4}) {
    const auto memory = RankMemory::create({count, kFloats}).value();
    std::vector<int> good(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] {
        Rank its(*memory, rank);
        for (std::int64_t step = 1; step <= 40; ++step) {
          if (its.run_step(step)) ++good[static_cast<std::size_t>(rank)];
          // Slow ranks must not read what fast ones write later.
          if ((step + rank) % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, std::vector<int>(static_cast<std::size_t>(count), 40));
  }
}

TEST(RankMemory, ConnectsProcesses) {
  const RankMemoryShape shape{2, kFloats};
  const auto memory = RankMemory::create(shape).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mapped = RankMemory::map(memory->file(), shape);
    if (!mapped) std::_Exit(2);
    Rank its(**mapped, 1);
    for (std::int64_t step = 7; step < 30; ++step) {
      if (!its.run_step(step)) std::_Exit(3);
    }
    std::_Exit(0);
  }
  Rank its(*memory, 0);
  for (std::int64_t step = 7; step < 30; ++step) EXPECT_TRUE(its.run_step(step));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

/// Runs `other` as rank 1 while rank 0 tries to run step 5 and then step 6; returns which of both it could run.
std::pair<bool, bool> steps_beside(const std::function<void(Rank&)>& other) {
  const auto memory = RankMemory::create({2, kFloats}).value();
  std::pair<bool, bool> could;
  std::thread first([&] {
    Rank its(*memory, 0);
    could.first = its.run_step(5);
    if (!could.first) its.ranks->fail_step();
    could.second = its.run_step(6);
  });
  std::thread second([&] {
    Rank its(*memory, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other waits in its sleep
    other(its);
  });
  first.join();
  second.join();
  return could;
}

TEST(RankMemory, AStepThatARankCannotComputeFailsForAllAndTheNextOneRuns) {
  const auto fails_early = [](Rank& its) {
    EXPECT_TRUE(its.ranks->begin_step(5));
    its.ranks->fail_step();
    EXPECT_TRUE(its.run_step(6));
  };
  EXPECT_EQ(steps_beside(fails_early), std::pair(false, true));
  const auto fails_between = [](Rank& its) {
    EXPECT_TRUE(its.ranks->begin_step(5));
    std::vector<float> out(1);
    its.ranks->part(1)[0] = value(5, 1, 0);
    EXPECT_TRUE(its.ranks->all_reduce(its.device->ops(), *its.stream, 1, out.data(), false));
    its.ranks->fail_step();
    EXPECT_TRUE(its.run_step(6));
  };
  EXPECT_EQ(steps_beside(fails_between), std::pair(false, true));
}

TEST(RankMemory, NoRankWaitsForOneThatHasLeft) {
  EXPECT_EQ(steps_beside([](Rank& its) { its.ranks->leave(); }), std::pair(false, false));
  const auto leaves_later = [](Rank& its) {
    EXPECT_TRUE(its.run_step(5));
    its.ranks->leave();
    const Status status = its.ranks->begin_step(6);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::device_failed);
  };
  EXPECT_EQ(steps_beside(leaves_later), std::pair(true, false));
}

TEST(RankMemory, NewHoldersOfTheRanksGoOnWhereOthersEnded) {
  const auto memory = RankMemory::create({2, kFloats}).value();
  const auto run = [&](std::int64_t first, std::int64_t last) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      memory->reset(rank);
    }
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Rank its(*memory, rank);
        for (std::int64_t step = first; step <= last; ++step) EXPECT_TRUE(its.run_step(step)) << step;
        its.ranks->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  run(1, 3);
  run(2, 4);  // steps of the lost devices may run again
}

}  // namespace
}  // namespace pagoda::kernels
