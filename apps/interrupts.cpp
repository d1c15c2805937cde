#include "apps/interrupts.hpp"

#include <atomic>
#include <csignal>

namespace pagoda::apps {
namespace {

std::atomic<bool> interrupted{false};  // a signal's handler reaches nothing else
struct sigaction before {};

void on_signal(int) {
  interrupted = true;
}

}  // namespace

Interrupts::Interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART: what waits wakes up
  ::sigaction(SIGINT, &action, &before);
}

Interrupts::~Interrupts() {
  ::sigaction(SIGINT, &before, nullptr);
}

bool Interrupts::take() {
  return interrupted.exchange(false);
}

}  // namespace pagoda::apps
