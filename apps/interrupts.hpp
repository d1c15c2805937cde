#pragma once

#include <csignal>
#include <vector>

namespace pagoda::apps {

/// Takes SIGINT (Ctrl-C), or the signals it is given, from the system while it lives, so that a program can end what it
/// is doing instead of ending itself. One at a time.
class Interrupts {
 public:
  explicit Interrupts(std::vector<int> signals = {SIGINT});
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Readable while there is one that was not taken: for poll.
  int fd() const;

  /// Whether there was one since the last call.
  bool take();

  /// The last signal that came; 0 before the first.
  int last_signal() const;

 private:
  struct Taken {
    int signal;
    struct sigaction before;
  };
  std::vector<Taken> taken_;
};

}  // namespace pagoda::apps
