#include "apps/service_manager.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "kernels/cpu/proc_files.hpp"

namespace pagoda::apps {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceManager::ServiceManager(std::string socket, std::chrono::microseconds watchdog)
    : socket_(std::move(socket)), watchdog_(watchdog) {}

ServiceManager ServiceManager::of_environment() {
  constexpr std::size_t kMost = std::size_t{1} << 50;
  const auto pid = variable("WATCHDOG_PID");
  const bool is_meant = pid.empty() || pid == std::to_string(::getpid());
  const auto microseconds = kernels::number_in(variable("WATCHDOG_USEC")).value_or(0);
  const bool is_watched = is_meant && microseconds < kMost;
  return ServiceManager(variable("NOTIFY_SOCKET"),
                        std::chrono::microseconds(is_watched ? static_cast<std::int64_t>(microseconds) : 0));
}

void ServiceManager::ready(std::string_view status) const {
  notify("READY=1\nSTATUS=" + std::string(status) + "\n");
}

void ServiceManager::stopping(std::chrono::milliseconds at_most) const {
  const std::chrono::microseconds time = at_most;
  notify("STOPPING=1\nSTATUS=finishing live requests\nEXTEND_TIMEOUT_USEC=" + std::to_string(time.count()) + "\n");
}

void ServiceManager::alive() const {
  notify("WATCHDOG=1\n");
}

std::chrono::milliseconds ServiceManager::alive_interval() const {
  if (socket_.empty()) return {};
  return std::chrono::duration_cast<std::chrono::milliseconds>(watchdog_ / 2);
}

void ServiceManager::notify(const std::string& lines) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool fits = !socket_.empty() && socket_.size() < sizeof address.sun_path;
  if (!fits || (socket_.front() != '/' && socket_.front() != '@')) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_.front() == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  ::sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address),
           size);
  ::close(fd);
}

}  // namespace pagoda::apps
