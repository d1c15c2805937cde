#include "apps/service_manager.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::apps {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The socket of a service manager.
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name.front() == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  }
  ~Manager() { ::close(fd_); }

  /// The next message; empty when there is none.
  std::string heard() const {
    char text[512];
    const auto size = ::recv(fd_, text, sizeof text, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<std::size_t>(size));
  }

 private:
  int fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
};

TEST(ServiceManager, hears_what_becomes_of_the_service) {
  const test::TemporaryFolder folder;
  const auto abstract = "@pagoda-test-" + std::to_string(::getpid());
  for (const auto& name : {(folder.path() / "notify").string(), abstract}) {
    const Manager manager(name);
    const ServiceManager service(name);
    service.ready("serving stories");
    EXPECT_EQ(manager.heard(), "READY=1\nSTATUS=serving stories\n");
    service.stopping(milliseconds(1500));
    EXPECT_EQ(manager.heard(), "STOPPING=1\nSTATUS=finishing live requests\nEXTEND_TIMEOUT_USEC=1500000\n");
    service.alive();
    EXPECT_EQ(manager.heard(), "WATCHDOG=1\n");
    EXPECT_EQ(manager.heard(), "");
  }
}

TEST(ServiceManager, may_be_nobody) {
  ServiceManager().ready("");
  ServiceManager("/no/such/socket").ready("");
  ServiceManager("relative").ready("");
  ServiceManager(std::string(500, '/')).ready("");
  EXPECT_EQ(ServiceManager("", microseconds(1000000)).alive_interval(), milliseconds(0));
}

TEST(ServiceManager, wants_signs_of_life_twice_in_its_time) {
  EXPECT_EQ(ServiceManager("/a", microseconds(3000000)).alive_interval(), milliseconds(1500));
  ::setenv("NOTIFY_SOCKET", "/a", 1);
  ::setenv("WATCHDOG_USEC", "2000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_EQ(ServiceManager::of_environment().alive_interval(), milliseconds(1000));
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(ServiceManager::of_environment().alive_interval(), milliseconds(0)) << "it is meant for another process";
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
}

}  // namespace
}  // namespace pagoda::apps
