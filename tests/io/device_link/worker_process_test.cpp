#include "io/device_link/worker_process.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <stop_token>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace pagoda::device_link {
namespace {

/// Starts a shell script in the place of a worker process; its end of the link is descriptor 3.
Result<std::unique_ptr<WorkerProcess>> start(const std::string& script, const std::stop_token& stop = {}) {
  WorkerProcessConfig config;
  config.command = {"/bin/sh", "-c", script};
  return WorkerProcess::start(config, std::make_shared<execution::StepDeadlines>(0), nullptr, stop);
}

TEST(WorkerProcess, OneThatEndsWhileItLoadsIsAnErrorThatSaysHow) {
  const auto exits = start("exit 9");
  ASSERT_FALSE(exits);
  EXPECT_EQ(exits.error().code, ErrorCode::device_failed);
  EXPECT_NE(exits.error().message.find("ended with exit code 9 while it loaded the model"), std::string::npos)
      << exits.error().message;
  const auto is_killed = start("kill -9 $$");
  ASSERT_FALSE(is_killed);
  EXPECT_NE(is_killed.error().message.find("was killed by signal 9"), std::string::npos);
}

TEST(WorkerProcess, OneThatIsStoppedWhileItLoadsHangs) {
  const auto stopped = start("kill -STOP $$; sleep 60");
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::device_failed);
  EXPECT_NE(stopped.error().message.find("stopped by a signal"), std::string::npos) << stopped.error().message;
}

TEST(WorkerProcess, OneThatSaysWhatIsNoMessageIsAnError) {
  for (const char* said : {R"('\005\0\0\0hello')", R"('\377\377\377\377hello')", R"('\0\0\0\0')"}) {
    const auto talks = start(std::string("printf ") + said + " >&3; exec sleep 60");
    ASSERT_FALSE(talks) << said;
    EXPECT_EQ(talks.error().code, ErrorCode::device_failed);
    EXPECT_NE(talks.error().message.find("has sent data that is not a message"), std::string::npos)
        << talks.error().message;
  }
}

TEST(WorkerProcess, AnEngineThatEndsDoesNotWaitForItToLoad) {
  std::stop_source stop;
  const auto begun = std::chrono::steady_clock::now();
  const std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  const auto silent = start("exec sleep 60", stop.get_token());
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::shutting_down);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
  const auto none = start("exec sleep 60", stop.get_token());  // nor does one begin that ends already
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::shutting_down);
}

}  // namespace
}  // namespace pagoda::device_link
