#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/rank_memory.hpp"

namespace pagoda::kernels {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kPartFloats = 1000;
constexpr std::int64_t kRowFloats = 100'000;

RankMemoryShape shape_of(int num_stages, int num_ranks) {
  return {.num_ranks = num_ranks, .floats = kPartFloats, .num_stages = num_stages, .row_floats = kRowFloats};
}

float row_value(std::int64_t step, int stage, int rank, std::int64_t i) {
  return static_cast<float>((step * 7 + stage * 29 + rank * 13 + i) % 1009) * 0.37F;
}

/// Number of floats that the stages pass in a step: none, few, and so many that the copy is divided.
std::int64_t size_of_step(std::int64_t step) {
  if (step % 50 == 0) return kRowFloats - step % 3;
  return step % 11 * (step % 7) * 30;
}

Status wrong(const std::string& what, const Communicator& ranks) {
  return fail(ErrorCode::internal, "wrong " + what + " at rank " + std::to_string(ranks.rank()) + " of stage " +
                                       std::to_string(ranks.stage()));
}

/// One rank of a stage: a device with one thread, and its connection.
class StageRank {
 public:
  StageRank(RankMemory& memory, int number) : ranks(memory.communicator(number)) {}

  bool is_first() const { return ranks->stage() == 0; }
  bool is_last() const { return ranks->stage() + 1 == ranks->num_stages(); }

  Status receive(std::int64_t step) {
    rows_.assign(static_cast<std::size_t>(size_of_step(step)), -1.0F);
    Status received = ranks->receive(device->ops(), *stream, size_of_step(step), rows_.data());
    if (!received) return received;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i] != row_value(step, ranks->stage() - 1, ranks->rank(), static_cast<std::int64_t>(i))) {
        return wrong("rows", *ranks);
      }
    }
    return {};
  }

  Status send(std::int64_t step) {
    rows_.resize(static_cast<std::size_t>(size_of_step(step)));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i] = row_value(step, ranks->stage(), ranks->rank(), static_cast<std::int64_t>(i));
    }
    Status sent = ranks->send(device->ops(), *stream, size_of_step(step), rows_.data());
    std::fill(rows_.begin(), rows_.end(), -2.0F);
    return sent;
  }

  Status add_up(std::int64_t step) {
    float* part = ranks->part(kPartFloats);
    for (std::int64_t i = 0; i < kPartFloats; ++i) part[i] = row_value(step, ranks->stage(), ranks->rank(), i);
    sums_.resize(kPartFloats);
    Status added = ranks->all_reduce(device->ops(), *stream, kPartFloats, sums_.data(), false);
    if (!added) return added;
    for (std::int64_t i = 0; i < kPartFloats; ++i) {
      float sum = 0.0F;
      for (int rank = 0; rank < ranks->num_ranks(); ++rank) sum += row_value(step, ranks->stage(), rank, i);
      if (sums_[static_cast<std::size_t>(i)] != sum) return wrong("sum", *ranks);
    }
    return {};
  }

  /// Runs a step as a model does; `fails_at` 0 to 2 names the part of the step before which the rank fails.
  Status run_step(std::int64_t step, int fails_at = -1) {
    Status status = parts_of_step(step, fails_at);
    if (!status) ranks->fail_step();
    return status;
  }

  std::shared_ptr<Device> device = create_cpu_device({.num_threads = 1, .isa = ""}).value();
  std::unique_ptr<Stream> stream = device->create_stream("rank").value();
  std::unique_ptr<Communicator> ranks;

 private:
  Status parts_of_step(std::int64_t step, int fails_at) {
    if (Status begun = ranks->begin_step(step); !begun) return begun;
    if (fails_at == 0) return fail(ErrorCode::internal, "fails first");
    if (Status received = is_first() ? Status() : receive(step); !received) return received;
    if (fails_at == 1) return fail(ErrorCode::internal, "fails before the sum");
    if (Status added = add_up(step); !added) return added;
    if (fails_at == 2) return fail(ErrorCode::internal, "fails before it sends");
    return is_last() ? Status() : send(step);
  }

  std::vector<float> rows_;
  std::vector<float> sums_;
};

/// Runs `work` on a thread for each rank of all stages.
void on_all_ranks(RankMemory& memory, const RankMemoryShape& shape, const std::function<void(StageRank&, int)>& work) {
  std::vector<std::thread> threads;
  for (int number = 0; number < shape.num_ranks_of_all_stages(); ++number) {
    threads.emplace_back([&, number] {
      StageRank its(memory, number);
      work(its, number);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Delays some steps, and now and then one of them for longer than a rank polls.
class Delays {
 public:
  explicit Delays(int number) : random_(static_cast<unsigned>(number) + 1) {}

  void wait() {
    const auto drawn = static_cast<int>(random_() % 100);
    if (drawn < 2) std::this_thread::sleep_for(milliseconds(2));
    if (drawn > 80) std::this_thread::sleep_for(std::chrono::microseconds(drawn));
  }

 private:
  std::mt19937 random_;
};

bool is_lost(const Status& status) {
  return !status && status.error().code == ErrorCode::device_failed;
}

/// Waits at most a second.
bool soon(const std::function<bool()>& done) {
  for (int i = 0; i < 1000 && !done(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return done();
}

/// Runs `wait` of a rank on a thread, then `end`; returns the status of `wait`, which must end within a second.
Status ends_when(const std::function<Status()>& wait, const std::function<void()>& end) {
  std::atomic<bool> has_ended = false;
  Status status;
  std::thread waiting([&] {
    status = wait();
    has_ended = true;
  });
  std::this_thread::sleep_for(milliseconds(20));  // the rank sleeps
  EXPECT_FALSE(has_ended);
  end();
  EXPECT_TRUE(soon([&] { return has_ended.load(); }));
  waiting.join();
  return status;
}

TEST(RankMemoryStages, ANumberInTheGroupIsARankOfAStage) {
  const auto memory = RankMemory::create(shape_of(3, 2)).value();
  const auto ranks = memory->communicator(5);
  EXPECT_EQ(ranks->stage(), 2);
  EXPECT_EQ(ranks->num_stages(), 3);
  EXPECT_EQ(ranks->rank(), 1);
  EXPECT_EQ(ranks->num_ranks(), 2);
}

TEST(RankMemoryStages, OneStageNeedsNoMemoryForRows) {
  const std::int64_t one = RankMemory::bytes({2, kPartFloats});
  EXPECT_EQ(RankMemory::bytes(shape_of(1, 2)), one);
  const std::int64_t page = one / 5;  // one for the states, four for the parts
  EXPECT_EQ(RankMemory::bytes(shape_of(3, 2)), page * (1 + 3 * 4 + 2 * 4));
}

TEST(RankMemoryStages, RowsReachTheNextStageUnchanged) {
  for (const auto& shape : {shape_of(2, 1), shape_of(3, 1), shape_of(2, 2), shape_of(3, 2)}) {
    const auto memory = RankMemory::create(shape).value();
    const std::int64_t num_steps = 2000 / shape.num_ranks;
    on_all_ranks(*memory, shape, [&](StageRank& its, int number) {
      Delays delays(number);
      for (std::int64_t step = 1; step <= num_steps; ++step) {
        const Status status = its.run_step(step);
        ASSERT_TRUE(status) << status.error().message << ", step " << step;
        delays.wait();
      }
    });
  }
}

TEST(RankMemoryStages, ConnectProcesses) {
  constexpr std::int64_t kFirst = 7;
  constexpr std::int64_t kEnd = 500;
  constexpr std::int64_t kFailing = 90;
  const RankMemoryShape shape = shape_of(3, 2);
  const auto memory = RankMemory::create(shape).value();
  // Returns whether all steps end as they must: rank 1 of stage 0 fails one of them.
  const auto run = [&](RankMemory& mapped, int number) {
    StageRank its(mapped, number);
    Delays delays(number);
    for (std::int64_t step = kFirst; step < kEnd; ++step) {
      const Status status = its.run_step(step, step == kFailing && number == 1 ? 1 : -1);
      if (static_cast<bool>(status) != (step != kFailing)) return false;
      delays.wait();
    }
    return true;
  };
  std::vector<pid_t> children;
  for (int number = 1; number < shape.num_ranks_of_all_stages(); ++number) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    const auto mapped = RankMemory::map(memory->file(), shape);
    std::_Exit(!mapped ? 2 : run(**mapped, number) ? 0 : 3);
  }
  EXPECT_TRUE(run(*memory, 0));
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(RankMemoryStages, AReceiverWaitsForAnEndedProcessUntilItsRankLeaves) {
  const RankMemoryShape shape = shape_of(2, 1);
  const auto memory = RankMemory::create(shape).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mapped = RankMemory::map(memory->file(), shape);
    StageRank its(**mapped, 0);
    std::_Exit(its.run_step(1) ? 0 : 3);  // without leaving
  }
  int exit_status = -1;
  ::waitpid(child, &exit_status, 0);
  EXPECT_EQ(exit_status, 0);
  StageRank second(*memory, 1);
  EXPECT_TRUE(second.run_step(1));
  std::atomic<bool> has_ended = false;
  Status status;
  std::thread waiting([&] {
    status = second.run_step(2);
    has_ended = true;
  });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(has_ended);
  memory->communicator(0)->leave();  // its supervisor does this when the process has ended
  EXPECT_TRUE(soon([&] { return has_ended.load(); }));
  waiting.join();
  EXPECT_TRUE(is_lost(status));
}

TEST(RankMemoryStages, AStageRunsAheadOfTheNextByTheRing) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  std::atomic<std::int64_t> num_sent = 0;
  constexpr std::int64_t kSteps = 20;
  std::thread sender([&] {
    StageRank its(*memory, 0);
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_TRUE(its.run_step(step));
      num_sent = step;
    }
  });
  StageRank its(*memory, 1);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::int64_t ahead = std::min(kSteps, step + 1);  // the steps before this one are received
    EXPECT_TRUE(soon([&] { return num_sent == ahead; })) << num_sent;
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(num_sent, ahead);
    const Status status = its.run_step(step);
    EXPECT_TRUE(status) << status.error().message;
  }
  sender.join();
}

TEST(RankMemoryStages, AStepThatARankCannotComputeFailsInLaterStagesAndTheNextOneRuns) {
  constexpr int kNumSteps = 12;
  const RankMemoryShape shape = shape_of(3, 2);
  for (int failing = 0; failing < shape.num_ranks_of_all_stages(); ++failing) {
    for (int part = 0; part < 3; ++part) {
      const auto fails = [](std::int64_t step) { return step == 3 || step == 4 || step == 8; };
      const auto memory = RankMemory::create(shape).value();
      on_all_ranks(*memory, shape, [&](StageRank& its, int number) {
        Delays delays(number);
        for (std::int64_t step = 1; step <= kNumSteps; ++step) {
          const Status status = its.run_step(step, fails(step) && number == failing ? part : -1);
          const bool is_beside = number != failing && number / 2 == failing / 2;
          if (fails(step) && part == 2 && is_beside) continue;  // it may have added up before the other fails
          const bool must_fail = fails(step) && number / 2 >= failing / 2;
          EXPECT_EQ(static_cast<bool>(status), !must_fail)
              << "rank " << number << ", failing rank " << failing << " before part " << part << ", step " << step
              << (status ? "" : ": " + status.error().message);
          delays.wait();
        }
      });
    }
  }
}

TEST(RankMemoryStages, AReceiverMayFailAnyNumberOfStepsBeforeItReceives) {
  constexpr std::int64_t kFailing = 7;  // more than a ring has room for
  const RankMemoryShape shape = shape_of(2, 2);
  const auto memory = RankMemory::create(shape).value();
  on_all_ranks(*memory, shape, [&](StageRank& its, int number) {
    for (std::int64_t step = 1; step <= kFailing + 5; ++step) {
      const bool fails = step <= kFailing && number >= 2;
      const Status status = its.run_step(step, fails ? 0 : -1);
      EXPECT_EQ(static_cast<bool>(status), !fails) << step;
    }
  });
}

TEST(RankMemoryStages, NoSenderWaitsForAReceiverThatHasFailedInTheStep) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  StageRank first(*memory, 0);
  StageRank second(*memory, 1);
  constexpr std::int64_t kFailing = 7;  // more than a ring has room for
  for (std::int64_t step = 1; step <= kFailing; ++step) EXPECT_FALSE(second.run_step(step, 0));
  for (std::int64_t step = 1; step <= kFailing; ++step) {
    EXPECT_EQ(static_cast<bool>(first.run_step(step, step % 3 == 0 ? 2 : -1)), step % 3 != 0);
  }
  EXPECT_TRUE(first.run_step(8));
  EXPECT_TRUE(first.run_step(9));
  EXPECT_TRUE(second.run_step(8));
  EXPECT_TRUE(second.run_step(9));

  EXPECT_TRUE(first.run_step(10));
  EXPECT_TRUE(first.run_step(11));
  const auto fail_all = [&] {
    for (std::int64_t step = 10; step <= 12; ++step) EXPECT_FALSE(second.run_step(step, 0));
  };
  EXPECT_TRUE(ends_when([&] { return first.run_step(12); }, fail_all));
  EXPECT_TRUE(first.run_step(13));
  EXPECT_TRUE(second.run_step(13));
}

TEST(RankMemoryStages, StepsThatOnlyBeginFailOnNoRank) {
  const auto memory = RankMemory::create(shape_of(2, 2)).value();
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      StageRank rank(*memory, number);
      std::mt19937 random(static_cast<unsigned>(number));
      for (std::int64_t step = 1; step <= 3000; ++step) {
        if (random() % 300 == 0) std::this_thread::sleep_for(milliseconds(1));
        const bool is_empty = step % 3 != 0;
        if (!(is_empty ? rank.ranks->begin_step(step) : rank.run_step(step))) ++num_failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failed, 0);
}

TEST(RankMemoryStages, AStepWithoutRowsFailsInTheNextStage) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  StageRank first(*memory, 0);
  StageRank second(*memory, 1);
  EXPECT_TRUE(first.ranks->begin_step(1));
  EXPECT_TRUE(first.run_step(2));  // step 1 has sent nothing
  const Status status = second.run_step(1);
  ASSERT_TRUE(is_lost(status));
  EXPECT_EQ(status.error().message, "stage 0 of 2 has not computed its part of the step");
  EXPECT_TRUE(second.run_step(2));
  EXPECT_TRUE(first.run_step(4));  // without step 3
  EXPECT_TRUE(is_lost(second.run_step(3)));
  EXPECT_TRUE(second.run_step(4));
}

TEST(RankMemoryStages, AFailedStepSendsOneMessage) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  StageRank first(*memory, 0);
  StageRank second(*memory, 1);
  for (std::int64_t step = 1; step < 20; ++step) {
    EXPECT_TRUE(first.ranks->begin_step(step));
    first.ranks->fail_step();
    first.ranks->fail_step();
    EXPECT_TRUE(is_lost(first.send(step)));
    EXPECT_TRUE(is_lost(second.run_step(step))) << step;
    EXPECT_TRUE(is_lost(second.add_up(step)));
  }
  EXPECT_TRUE(first.run_step(20));
  EXPECT_TRUE(second.run_step(20));
}

TEST(RankMemoryStages, ErrorsNameStageAndRank) {
  const RankMemoryShape shape = shape_of(2, 2);
  const auto memory = RankMemory::create(shape).value();
  std::array<std::string, 4> messages;
  std::barrier all_have_begun(shape.num_ranks_of_all_stages());
  on_all_ranks(*memory, shape, [&](StageRank& its, int number) {
    EXPECT_TRUE(its.ranks->begin_step(1));
    all_have_begun.arrive_and_wait();
    if (number == 1) its.ranks->fail_step();
    if (number == 1) return;
    const Status status = its.is_first() ? its.add_up(1) : its.receive(1);
    ASSERT_FALSE(status);
    its.ranks->fail_step();
    messages[static_cast<std::size_t>(number)] = status.error().message;
  });
  EXPECT_EQ(messages[0], "rank 1 of 2 in stage 0 of 2 has not computed its part of the step");
  EXPECT_EQ(messages[2], "rank 0 of 2 in stage 0 of 2 has not computed its part of the step");
  EXPECT_EQ(messages[3], "rank 1 of 2 in stage 0 of 2 has not computed its part of the step");
}

TEST(RankMemoryStages, NoReceiverWaitsForARankThatHasLeft) {
  for (const int leaving : {0, 1}) {
    const auto memory = RankMemory::create(shape_of(2, 1)).value();
    StageRank first(*memory, 0);
    StageRank second(*memory, 1);
    EXPECT_TRUE(first.run_step(1));
    EXPECT_TRUE(second.run_step(1));
    const Status status =
        ends_when([&] { return second.run_step(2); }, [&] { (leaving == 0 ? first : second).ranks->leave(); });
    ASSERT_TRUE(is_lost(status));
    EXPECT_EQ(status.error().message,
              leaving == 0 ? "stage 0 of 2 has not computed its part of the step" : "stage 1 of 2 has left the others");
    EXPECT_TRUE(is_lost(second.run_step(3)));
  }
}

TEST(RankMemoryStages, NoSenderWaitsForARankThatHasLeft) {
  for (const int leaving : {0, 1}) {
    for (const int fails_at : {-1, 2}) {  // sends rows, or that the step has failed
      const auto memory = RankMemory::create(shape_of(2, 1)).value();
      StageRank first(*memory, 0);
      StageRank second(*memory, 1);
      EXPECT_TRUE(first.run_step(1));
      EXPECT_TRUE(first.run_step(2));
      const Status status = ends_when([&] { return first.run_step(3, fails_at); },
                                      [&] { (leaving == 0 ? first : second).ranks->leave(); });
      ASSERT_FALSE(status);
      if (fails_at >= 0) continue;
      EXPECT_TRUE(is_lost(status));
      EXPECT_EQ(status.error().message, "stage " + std::to_string(leaving) + " of 2 has left the others");
      EXPECT_TRUE(is_lost(first.run_step(4)));
    }
  }
}

TEST(RankMemoryStages, RanksOfAllStagesEndWhenOneHasLeft) {
  const RankMemoryShape shape = shape_of(3, 2);
  for (int leaving = 0; leaving < shape.num_ranks_of_all_stages(); ++leaving) {
    const auto memory = RankMemory::create(shape).value();
    const auto start = std::chrono::steady_clock::now();
    on_all_ranks(*memory, shape, [&](StageRank& its, int number) {
      for (std::int64_t step = 1; step < 1'000'000; ++step) {
        if (number == leaving && step == 10) return its.ranks->leave();
        if (!its.run_step(step)) return its.ranks->leave();  // as its worker does when the replica ends
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

TEST(RankMemoryStages, RowsThatWereSentBeforeLeavingAreReceived) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  StageRank first(*memory, 0);
  StageRank second(*memory, 1);
  EXPECT_TRUE(first.run_step(1));
  EXPECT_TRUE(first.run_step(2));
  first.ranks->leave();
  EXPECT_TRUE(second.run_step(1));
  EXPECT_TRUE(second.run_step(2));
  EXPECT_TRUE(is_lost(second.run_step(3)));
}

TEST(RankMemoryStages, NothingIsSentToARankThatHasLeft) {
  const auto memory = RankMemory::create(shape_of(2, 1)).value();
  StageRank first(*memory, 0);
  StageRank second(*memory, 1);
  second.ranks->leave();
  EXPECT_TRUE(is_lost(first.run_step(1)));
}

TEST(RankMemoryStages, NewHoldersOfTheRanksFindEmptyRings) {
  const RankMemoryShape shape = shape_of(3, 2);
  const auto memory = RankMemory::create(shape).value();
  const auto run = [&](std::int64_t first, std::int64_t last) {
    for (int number = 0; number < shape.num_ranks_of_all_stages(); ++number) memory->reset(number);
    std::barrier all_have_ended(shape.num_ranks_of_all_stages());
    on_all_ranks(*memory, shape, [&](StageRank& its, int) {
      for (std::int64_t step = first; step <= last; ++step) EXPECT_TRUE(its.run_step(step)) << step;
      // The next stage never takes this message.
      EXPECT_TRUE(its.ranks->begin_step(last + 1));
      if (!its.is_last()) {
        EXPECT_TRUE(its.send(last + 1));
      }
      all_have_ended.arrive_and_wait();
      its.ranks->leave();
    });
  };
  run(1, 8);
  run(2, 3);  // steps of the lost devices may run again
  run(1, 6);
}

}  // namespace
}  // namespace pagoda::kernels
