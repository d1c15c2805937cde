#pragma once

#include <functional>
#include <string>

namespace pagoda::device_link {

struct PeerEnd {
  std::string how;  ///< "was killed by signal 9"
  bool was_killed =
      false;  ///< whether it was killed from outside, by a signal that a program's own faults do not raise
};

/// The process at the other end of a worker's link: a child of this process, or a worker that has joined from another
/// host. The destructor ends it; no event is called afterwards.
class WorkerPeer {
 public:
  /// Each is called at most once, on another thread, possibly before the function that starts the peer returns.
  struct Events {
    std::function<void()> on_stopped;                    ///< a signal (SIGSTOP) has stopped it
    std::function<void(const PeerEnd& ended)> on_ended;  ///< it has ended
  };

  virtual ~WorkerPeer() = default;

  /// Returns "the worker process 4711", for messages.
  virtual std::string name() const = 0;
  /// Ends the process if it has not ended. Any thread.
  virtual void kill() = 0;
};

}  // namespace pagoda::device_link
