#pragma once

#include <functional>
#include <string>

namespace pagoda::device_link {

struct PeerEnd {
  std::string how;          ///< "was killed by signal 9"
  bool was_killed = false;  ///< from outside, by a signal that a program does not get for what it does itself
};

/// Who is at the other end of a worker's link: a child of this process, or a worker that has joined from elsewhere.
/// Once it is destroyed it has ended, and its events have been called for the last time.
class WorkerPeer {
 public:
  /// Called on a thread of its own, at most once each; before whoever starts it returns, even.
  struct Events {
    std::function<void()> on_stopped;                    ///< by a signal (SIGSTOP): it does nothing any more
    std::function<void(const PeerEnd& ended)> on_ended;  ///< nothing is left of it here
  };

  virtual ~WorkerPeer() = default;

  /// "the worker process 4711", for messages.
  virtual std::string name() const = 0;
  /// Ends it, if it has not ended. Any thread.
  virtual void kill() = 0;
};

}  // namespace pagoda::device_link
