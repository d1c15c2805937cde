#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "io/device_link/worker_peer.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// Number of the first inherited descriptor in a child process; the next descriptors have the next numbers.
inline constexpr int kInheritedDescriptor = 3;

/// A program that this process has started. A thread of its own starts the program and waits for its end, without
/// polling. This thread must not end before the child: a child may ask to die with the thread that started it
/// (PR_SET_PDEATHSIG).
class ChildProcess final : public WorkerPeer {
 public:
  /// Starts a program. `command`: its path and arguments. `inherited`: open descriptors, which the child gets from
  /// number kInheritedDescriptor on; the caller keeps its own descriptors. The child's standard output goes to standard
  /// error, it has no standard input, and it has a process group of its own, so that it gets no signals of the
  /// terminal. Errors: io_failed.
  static Result<std::unique_ptr<ChildProcess>> start(const std::vector<std::string>& command,
                                                     const std::vector<int>& inherited, Events events);
  /// Kills the program and waits for its end.
  ~ChildProcess() override;

  pid_t pid() const { return pid_; }
  std::string name() const override { return "the worker process " + std::to_string(pid_); }
  /// Sends SIGKILL.
  void kill() override;

 private:
  explicit ChildProcess(Events events) : events_(std::move(events)) {}
  void wait_for_end();

  Events events_;
  pid_t pid_ = -1;
  std::mutex mutex_;  // guards has_ended_: after the end, another process may have the process id
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace pagoda::device_link
