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

/// Where a child finds the first of the descriptors that it was given; the others follow.
inline constexpr int kInheritedDescriptor = 3;

/// A program that this process has started. A thread of its own starts it and waits for what becomes of it, without
/// polling: a child may ask to die with the thread that started it (PR_SET_PDEATHSIG), so that one must not end first.
class ChildProcess final : public WorkerPeer {
 public:
  /// `command`: a program's path and arguments. The child has `inherited`, open descriptors that stay the caller's,
  /// from kInheritedDescriptor on, standard error as its standard output, no standard input, and a process group of its
  /// own, so that a terminal's signals are not for it. Errors: io_failed.
  static Result<std::unique_ptr<ChildProcess>> start(const std::vector<std::string>& command,
                                                     const std::vector<int>& inherited, Events events);
  /// Kills it and waits for its end.
  ~ChildProcess() override;

  pid_t pid() const { return pid_; }
  std::string name() const override { return "the worker process " + std::to_string(pid_); }
  /// With SIGKILL.
  void kill() override;

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
