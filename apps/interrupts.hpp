#pragma once

#include <csignal>
#include <vector>

namespace pagoda::apps {

/// Catches SIGINT (Ctrl-C), or the given signals, while this object lives, so that a program can end its current work
/// instead of being ended. Only one such object may exist at a time.
class Interrupts {
 public:
  explicit Interrupts(std::vector<int> signals = {SIGINT});
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Returns a descriptor for poll, readable while there is a signal that was not taken.
  int fd() const;

  /// Returns whether a signal came since the last call.
  bool take();

  /// Returns the last signal that came; 0 before the first.
  int last_signal() const;

 private:
  struct Taken {
    int signal;
    struct sigaction before;
  };
  std::vector<Taken> taken_;
};

}  // namespace pagoda::apps
