#include "apps/interrupts.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace pagoda::apps {
namespace {

int event = -1;  // a signal's handler reaches nothing else
struct sigaction before {};

void on_signal(int) {
  const int error = errno;
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] const auto written = ::write(event, &kOne, sizeof kOne);  // full: there is one already
  errno = error;
}

}  // namespace

Interrupts::Interrupts() {
  event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before);
}

Interrupts::~Interrupts() {
  ::sigaction(SIGINT, &before, nullptr);
  ::close(event);
}

int Interrupts::fd() const {
  return event;
}

bool Interrupts::take() {
  std::uint64_t count = 0;
  return ::read(event, &count, sizeof count) == sizeof count;
}

}  // namespace pagoda::apps
