#pragma once

#include <functional>
#include <string>

namespace pagoda::device_link {

/// Describes the end of a peer's process.
struct PeerEnd {
  std::string how;  ///< end of a sentence about the process, for example "was killed by signal 9"
  /// Whether a signal from outside has killed the process. False for signals that a fault of the program raises, and if
  /// the kernel may have killed the process for lack of memory.
  bool was_killed = false;
};

/// The process at the other end of a worker's link: a child of this process, or a worker that has joined from another
/// host. The destructor ends it; no event is called afterwards.
class WorkerPeer {
 public:
  /// Each is called at most once, on another thread, possibly before the function that starts the peer returns.
  struct Events {
    std::function<void()> on_stopped;                    ///< a signal (SIGSTOP) has stopped the process
    std::function<void(const PeerEnd& ended)> on_ended;  ///< the process has ended
  };

  virtual ~WorkerPeer() = default;

  /// Returns a name for messages, for example "the worker process 4711".
  virtual std::string name() const = 0;
  /// Ends the process if it has not ended. Any thread.
  virtual void kill() = 0;
};

}  // namespace pagoda::device_link
