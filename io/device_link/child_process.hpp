#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "io/device_link/frame_channel.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// Where a child finds the first of the descriptors that it was given; the others follow.
inline constexpr int kInheritedDescriptor = 3;

struct ChildEnd {
  std::string how;          ///< "was killed by signal 9"
  bool was_killed = false;  ///< with SIGKILL: it has done nothing wrong itself
};

/// A program that this process has started. A thread of its own starts it and waits for what becomes of it, without
/// polling: a child may ask to die with the thread that started it (PR_SET_PDEATHSIG), so that one must not end first.
class ChildProcess {
 public:
  /// Called on the thread that waits, at most once each; before start() returns, even.
  struct Events {
    std::function<void()> on_stopped;                     ///< by a signal (SIGSTOP): it does nothing any more
    std::function<void(const ChildEnd& ended)> on_ended;  ///< and is reaped
  };

  /// `command`: a program's path and arguments. The child has `inherited`, open descriptors that stay the caller's,
  /// from kInheritedDescriptor on, standard error as its standard output, no standard input, and a process group of its
  /// own, so that a terminal's signals are not for it. Errors: io_failed.
  static Result<std::unique_ptr<ChildProcess>> start(const std::vector<std::string>& command,
                                                     const std::vector<int>& inherited, Events events);
  /// Kills it and waits for its end.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  /// With SIGKILL, if it has not ended. Any thread.
  void kill();

 private:
  explicit ChildProcess(Events events) : events_(std::move(events)) {}
  void wait_for_end();

  Events events_;
  pid_t pid_ = -1;
  std::mutex mutex_;  // of has_ended_: a process id may be another's then
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace pagoda::device_link
