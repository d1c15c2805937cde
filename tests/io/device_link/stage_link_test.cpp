#include "io/device_link/stage_link.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "io/device_link/stage_relay.hpp"
#include "kernels/device.hpp"

namespace pagoda::device_link {
namespace {

constexpr std::int64_t kMaxFloats = 300'000;  // more than a message has

float row_value(std::int64_t step, int stage, std::int64_t i) {
  return static_cast<float>((step * 7 + stage * 29 + i) % 1009) * 0.37F;
}

/// Number of floats that the stages pass in a step: none, few, and so many that they take several messages.
std::int64_t size_of_step(std::int64_t step) {
  if (step % 50 == 0) return kMaxFloats - step % 3;
  return step % 11 * (step % 7) * 30;
}

/// The stages of a replica: each has a channel to the engine, which relays their rows.
class Stages {
 public:
  explicit Stages(int num_stages) : relay_(num_stages, kMaxFloats) {
    for (int stage = 0; stage < num_stages; ++stage) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      engine_.push_back(FrameChannel::create(Descriptor(ends[0])).value());
      worker_.push_back(FrameChannel::create(Descriptor(ends[1])).value());
      links_.push_back(std::make_shared<StageLink>(
          models::RankPlace{.stage = stage, .num_stages = num_stages}, kMaxFloats,
          [channel = worker_.back().get()](StageRows rows) { channel->send(FromWorker(std::move(rows))); }));
      relay_.connect(stage, *engine_.back());
    }
    for (int stage = 0; stage < num_stages; ++stage) {
      const auto index = static_cast<std::size_t>(stage);
      read<FromWorker>(*engine_[index], [=, this](const StageRows& rows) { return relay_.pass(stage, rows); });
      read<ToWorker>(*worker_[index], [link = links_[index]](const StageRows& rows) { return link->take(rows); });
    }
  }

  ~Stages() {
    for (const auto& channel : engine_) channel->close();
    for (const auto& channel : worker_) channel->close();
    for (std::thread& reader : readers_) reader.join();
    EXPECT_EQ(num_refused_, 0);
  }

  std::unique_ptr<kernels::Communicator> connect(int stage) {
    return links_.at(static_cast<std::size_t>(stage))->communicator();
  }

 private:
  template <class Message>
  void read(FrameChannel& channel, std::function<bool(const StageRows&)> take) {
    readers_.emplace_back([this, &channel, take = std::move(take)] {
      const auto end = channel.run([&](std::span<const std::byte> frame) {
        Message message;
        return decode(frame, message) && take(std::get<StageRows>(message));
      });
      if (end != FrameChannel::End::closed) ++num_refused_;
    });
  }

  StageRelay relay_;
  std::vector<std::unique_ptr<FrameChannel>> engine_;
  std::vector<std::unique_ptr<FrameChannel>> worker_;
  std::vector<std::shared_ptr<StageLink>> links_;
  std::atomic<int> num_refused_ = 0;
  std::vector<std::thread> readers_;
};

/// A stage with a device of one thread, and its connection.
class Stage {
 public:
  Stage(Stages& stages, int number) : others(stages.connect(number)) {}

  /// Runs a step as a model does; `fails_at` 0 or 1 names the part of the step before which the stage fails.
  Status run_step(std::int64_t step, int fails_at = -1) {
    Status status = parts_of_step(step, fails_at);
    if (!status) others->fail_step();
    return status;
  }

  std::unique_ptr<kernels::Communicator> others;

 private:
  Status parts_of_step(std::int64_t step, int fails_at) {
    if (Status begun = others->begin_step(step); !begun) return begun;
    if (fails_at == 0) return fail(ErrorCode::internal, "fails before it receives");
    if (others->stage() > 0) {
      if (Status received = receive(step); !received) return received;
    }
    if (fails_at == 1) return fail(ErrorCode::internal, "fails before it sends");
    return others->stage() + 1 < others->num_stages() ? send(step) : Status();
  }

  Status receive(std::int64_t step) {
    std::vector<float> rows(static_cast<std::size_t>(size_of_step(step)), -1.0F);
    Status received = others->receive(device_->ops(), *stream_, size_of_step(step), rows.data());
    if (!received) return received;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != row_value(step, others->stage() - 1, static_cast<std::int64_t>(i))) {
        return fail(ErrorCode::internal, "wrong rows in step " + std::to_string(step));
      }
    }
    return {};
  }

  Status send(std::int64_t step) {
    std::vector<float> rows(static_cast<std::size_t>(size_of_step(step)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = row_value(step, others->stage(), static_cast<std::int64_t>(i));
    }
    return others->send(device_->ops(), *stream_, size_of_step(step), rows.data());
  }

  std::shared_ptr<kernels::Device> device_ = kernels::create_cpu_device({.num_threads = 1, .isa = ""}).value();
  std::unique_ptr<kernels::Stream> stream_ = device_->create_stream("stage").value();
};

void on_all_stages(int num_stages, const std::function<void(Stage&, int)>& work) {
  Stages stages(num_stages);
  std::vector<std::thread> threads;
  for (int number = 0; number < num_stages; ++number) {
    threads.emplace_back([&, number] {
      Stage its(stages, number);
      work(its, number);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

bool is_lost(const Status& status) {
  return !status && status.error().code == ErrorCode::device_failed;
}

TEST(StageLink, RowsReachTheNextStageUnchanged) {
  for (const int num_stages : {2, 3}) {
    on_all_stages(num_stages, [](Stage& its, int number) {
      std::mt19937 random(static_cast<unsigned>(number) + 1);
      for (std::int64_t step = 1; step <= 500; ++step) {
        const Status status = its.run_step(step);
        ASSERT_TRUE(status) << status.error().message << ", step " << step;
        if (random() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
}

TEST(StageLink, AStepThatAStageCannotComputeFailsInLaterStagesAndTheNextOneRuns) {
  for (int failing = 0; failing < 3; ++failing) {
    for (const int part : {0, 1}) {
      const auto fails = [](std::int64_t step) { return step == 3 || step == 4 || step == 8; };
      on_all_stages(3, [&](Stage& its, int number) {
        for (std::int64_t step = 1; step <= 12; ++step) {
          const Status status = its.run_step(step, fails(step) && number == failing ? part : -1);
          EXPECT_EQ(static_cast<bool>(status), !fails(step) || number < failing)
              << "stage " << number << ", failing stage " << failing << ", step " << step;
        }
      });
    }
  }
}

TEST(StageLink, AStageMayFailAnyNumberOfStepsBeforeItReceives) {
  on_all_stages(2, [](Stage& its, int number) {
    for (std::int64_t step = 1; step <= 12; ++step) {
      const bool fails = step <= 7 && number == 1;
      EXPECT_EQ(static_cast<bool>(its.run_step(step, fails ? 0 : -1)), !fails) << step;
    }
  });
}

TEST(StageLink, AStepWithoutRowsFailsInTheNextStage) {
  Stages stages(2);
  Stage first(stages, 0);
  Stage second(stages, 1);
  EXPECT_TRUE(first.others->begin_step(1));
  EXPECT_TRUE(first.run_step(2));  // step 1 has sent nothing
  const Status status = second.run_step(1);
  ASSERT_TRUE(is_lost(status));
  EXPECT_EQ(status.error().message, "stage 0 of 2 has not computed its part of the step");
  EXPECT_TRUE(second.run_step(2));
  EXPECT_TRUE(first.run_step(4));  // without step 3
  EXPECT_TRUE(is_lost(second.run_step(3)));
  EXPECT_TRUE(second.run_step(4));
}

TEST(StageLink, AFailedStepSendsOneMessage) {
  Stages stages(2);
  Stage first(stages, 0);
  Stage second(stages, 1);
  for (std::int64_t step = 1; step < 20; ++step) {
    EXPECT_TRUE(first.others->begin_step(step));
    first.others->fail_step();
    first.others->fail_step();
    EXPECT_TRUE(is_lost(second.run_step(step))) << step;
  }
  EXPECT_TRUE(first.run_step(20));
  EXPECT_TRUE(second.run_step(20));
}

TEST(StageLink, AStageThatLeavesWaitsNoLonger) {
  Stages stages(2);
  Stage second(stages, 1);
  Status status;
  std::thread waiting([&] { status = second.run_step(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  second.others->leave();
  waiting.join();
  ASSERT_TRUE(is_lost(status));
  EXPECT_EQ(status.error().message, "stage 1 of 2 has left the others");
  EXPECT_TRUE(is_lost(second.run_step(2)));
}

StageRows piece(StepId step, std::int64_t count, std::int64_t floats) {
  return {.step = step, .count = count, .bytes = std::string(static_cast<std::size_t>(floats) * sizeof(float), '\0')};
}

StageRows failed(StepId step) {
  return {.step = step, .count = 0, .has_failed = true, .bytes = {}};
}

bool all_may_come(const std::vector<StageRows>& messages) {
  StageRowsChecks checks(100);
  return std::ranges::all_of(messages, [&](const StageRows& rows) { return checks.take(rows); });
}

TEST(StageRowsChecks, TakeStepsInOrderAndThePiecesOfEach) {
  EXPECT_TRUE(all_may_come({piece(1, 100, 60), piece(1, 100, 40), failed(2), piece(5, 0, 0), piece(6, 7, 7)}));
  for (const auto& wrong : std::vector<std::vector<StageRows>>{
           {piece(0, 1, 1)},                                    // steps are numbered from 1
           {piece(1, 101, 50)},                                 // more than a stage passes
           {piece(1, -1, 0)},                                   // less than nothing
           {piece(1, 10, 11)},                                  // more than it says
           {piece(1, 10, 0)},                                   // nothing of something
           {piece(1, 10, 5), piece(1, 10, 6)},                  // more than it says in two pieces
           {piece(1, 10, 5), piece(1, 9, 4)},                   // another number of floats
           {piece(1, 10, 5), piece(2, 10, 5)},                  // the rest is missing
           {piece(1, 10, 5), failed(1)},                        // sent and failed
           {piece(1, 10, 10), piece(1, 10, 10)},                // twice
           {piece(2, 10, 10), piece(1, 10, 10)},                // an earlier step
           {piece(1, 10, 10), failed(1)},                       // after all rows
           {StageRows{.step = 1, .count = 1, .bytes = "abc"}},  // no float
           {StageRows{.step = 1, .count = 1, .has_failed = true, .bytes = "abcd"}},
           {StageRows{.step = 1, .count = 1, .has_failed = true, .bytes = {}}},
       }) {
    EXPECT_FALSE(all_may_come(wrong)) << "case with " << wrong.size() << " messages, step " << wrong.back().step;
  }
}

TEST(StageRelay, RefusesRowsThatNoStageSendsAndDropsThoseWithoutAReceiver) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const auto channel = FrameChannel::create(Descriptor(ends[0])).value();
  const Descriptor other(ends[1]);
  const auto bytes_sent = [&] {
    char received[64];
    return ::recv(other.get(), received, sizeof received, MSG_DONTWAIT);
  };
  StageRelay relay(2, 100);
  EXPECT_FALSE(relay.pass(1, piece(1, 1, 1)));  // the last stage passes nothing on
  EXPECT_FALSE(relay.pass(0, piece(1, 101, 1)));
  EXPECT_TRUE(relay.pass(0, piece(1, 1, 1)));  // stage 1 has no process
  relay.connect(1, *channel);
  EXPECT_TRUE(relay.pass(0, piece(2, 1, 1)));
  EXPECT_GT(bytes_sent(), 0);
  EXPECT_FALSE(relay.pass(0, piece(2, 1, 1)));
  relay.connect(0, *channel);  // another process, whose steps begin again
  EXPECT_TRUE(relay.pass(0, piece(1, 1, 1)));
  EXPECT_GT(bytes_sent(), 0);
  relay.disconnect(1, *channel);
  EXPECT_TRUE(relay.pass(0, piece(2, 1, 1)));
  EXPECT_LT(bytes_sent(), 0);
}

TEST(StageLink, TheFirstStageTakesNoRows) {
  const auto link = std::make_shared<StageLink>(models::RankPlace{.stage = 0, .num_stages = 2}, 100, nullptr);
  EXPECT_FALSE(link->take(piece(1, 1, 1)));
}

}  // namespace
}  // namespace pagoda::device_link
