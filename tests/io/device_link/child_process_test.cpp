#include "io/device_link/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <future>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/device_link/frame_channel.hpp"

namespace pagoda::device_link {
namespace {

struct Received {
  std::promise<void> stopped;
  std::promise<std::string> ended;
  ChildProcess::Events events() {
    return {[this] { stopped.set_value(); },
            [this](const PeerEnd& end) {
              EXPECT_EQ(end.was_killed, end.how == "was killed by signal 9");
              ended.set_value(end.how);
            }};
  }
};

std::unique_ptr<ChildProcess> start(const std::string& script, Received& received, Descriptor inherited = {}) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor other(ends[0]);
  if (inherited.get() < 0) inherited = Descriptor(ends[1]);
  auto child = ChildProcess::start({"/bin/sh", "-c", script}, {inherited.get()}, received.events());
  EXPECT_TRUE(child);
  return std::move(*child);
}

TEST(ChildProcess, ItsEndIsToldHoweverItComes) {
  Received exited;
  const auto ends = start("exit 7", exited);
  EXPECT_EQ(exited.ended.get_future().get(), "ended with exit code 7");
  Received killed;
  const auto dies = start("kill -9 $$", killed);
  EXPECT_EQ(killed.ended.get_future().get(), "was killed by signal 9");
  Received crashed;
  const auto crashes = start("kill -SEGV $$", crashed);
  EXPECT_EQ(crashed.ended.get_future().get(), "was killed by signal 11");
}

TEST(ChildProcess, AStopIsToldAndAStoppedOneCanBeKilled) {
  Received received;
  const auto child = start("kill -STOP $$; sleep 60", received);
  received.stopped.get_future().get();
  child->kill();
  EXPECT_EQ(received.ended.get_future().get(), "was killed by signal 9");
}

TEST(ChildProcess, ItIsReapedAtTheEndOfItsOwner) {
  Received received;
  auto child = start("exec sleep 60", received);
  const pid_t pid = child->pid();
  EXPECT_EQ(::kill(pid, 0), 0);
  child.reset();
  EXPECT_EQ(received.ended.get_future().get(), "was killed by signal 9");
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcess, ItHasTheDescriptorAndAProcessGroupOfItsOwn) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor own(ends[0]);
  Received received;
  const auto child = start("echo $(ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat) >&3; read line",
                           received, Descriptor(ends[1]));
  char text[64] = {};
  ASSERT_GT(::recv(own.get(), text, sizeof text - 1, 0), 0);
  EXPECT_EQ(std::stol(text), child->pid());
  EXPECT_EQ(received.ended.get_future().get(), "ended with exit code 1");  // nothing to read on its standard input
}

TEST(ChildProcess, ItHasAllItsDescriptorsInTheirOrderWhateverTheirNumbers) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor own(ends[0]);
  const Descriptor given(ends[1]);
  // Each stands where the child is to find another.
  std::vector<Descriptor> copies;
  std::vector<int> inherited;
  for (int i = 0; i < 4; ++i) copies.emplace_back(::fcntl(given.get(), F_DUPFD_CLOEXEC, 0));
  for (const Descriptor& copy : copies) inherited.insert(inherited.begin(), copy.get());
  Received received;
  const auto child = ChildProcess::start({"/bin/sh", "-c", "printf a >&3; printf b >&4; printf c >&5; printf d >&6"},
                                         inherited, received.events());
  ASSERT_TRUE(child);
  EXPECT_EQ(received.ended.get_future().get(), "ended with exit code 0");
  char text[8] = {};
  ASSERT_EQ(::recv(own.get(), text, 4, MSG_WAITALL), 4);
  EXPECT_STREQ(text, "abcd");
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnError) {
  Received received;
  const auto child = ChildProcess::start({"/nonexistent/program"}, {STDERR_FILENO}, received.events());
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::io_failed);
  EXPECT_NE(child.error().message.find("/nonexistent/program"), std::string::npos);
}

}  // namespace
}  // namespace pagoda::device_link
