#pragma once

namespace pagoda::apps {

/// Takes SIGINT (Ctrl-C) from the system while it lives, so that a program can end what it is doing instead of ending
/// itself. One at a time; calls that wait for the system return early with EINTR.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether there was one since the last call.
  bool take();
};

}  // namespace pagoda::apps
