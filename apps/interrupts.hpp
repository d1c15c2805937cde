#pragma once

namespace pagoda::apps {

/// Takes SIGINT (Ctrl-C) from the system while it lives, so that a program can end what it is doing instead of ending
/// itself. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Readable while there is one that was not taken: for poll.
  int fd() const;

  /// Whether there was one since the last call.
  bool take();
};

}  // namespace pagoda::apps
