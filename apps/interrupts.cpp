#include "apps/interrupts.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace pagoda::apps {
namespace {

// Globals, because a signal handler can reach nothing else.
int event = -1;
std::atomic<int> last_taken = 0;

void on_signal(int signal) {
  const int error = errno;
  last_taken = signal;
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] const auto written = ::write(event, &kOne, sizeof kOne);  // full: a signal is already pending
  errno = error;
}

}  // namespace

Interrupts::Interrupts(std::vector<int> signals) {
  last_taken = 0;
  event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : signals) {
    taken_.push_back({signal, {}});
    ::sigaction(signal, &action, &taken_.back().before);
  }
}

Interrupts::~Interrupts() {
  for (const auto& taken : taken_) ::sigaction(taken.signal, &taken.before, nullptr);
  ::close(event);
}

int Interrupts::fd() const {
  return event;
}

bool Interrupts::take() {
  std::uint64_t count = 0;
  return ::read(event, &count, sizeof count) == sizeof count;
}

int Interrupts::last_signal() const {
  return last_taken;
}

}  // namespace pagoda::apps
