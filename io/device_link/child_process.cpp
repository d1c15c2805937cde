#include "io/device_link/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/retry_on_bad_alloc.hpp"
#include "io/device_link/frame_channel.hpp"
#include "kernels/cpu/oom_kills.hpp"

namespace pagoda::device_link {
namespace {

/// Duplicates a descriptor to a number above those that the child inherits, so that dup2 for one descriptor does not
/// overwrite another.
Descriptor duplicate_above(int descriptor, std::size_t num_given) {
  return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, kInheritedDescriptor + static_cast<int>(num_given)));
}

/// Returns 0 or an error number.
int spawn(const std::vector<std::string>& command, const std::vector<int>& inherited, pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  std::vector<Descriptor> given;
  for (const int descriptor : inherited) {
    given.push_back(duplicate_above(descriptor, inherited.size()));
    const int place = kInheritedDescriptor + static_cast<int>(given.size()) - 1;
    ::posix_spawn_file_actions_adddup2(&files, given.back().get(), place);
  }
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) {  // standard error is closed
    ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawn(&pid, arguments.front(), &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error;
}

/// Returns whether a signal usually comes from another process. Other signals are caused by the program itself.
bool comes_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

/// `ran_out_of_memory`: whether the kernel has killed a process for lack of memory since the child began. The child's
/// own work may be the cause.
PeerEnd end_of(const siginfo_t& info, bool ran_out_of_memory) {
  if (info.si_code == CLD_EXITED) return {"ended with exit code " + std::to_string(info.si_status)};
  const std::string how = "was killed by signal " + std::to_string(info.si_status);
  if (info.si_status == SIGKILL && ran_out_of_memory) return {how + ", because memory ran out", false};
  return {how, comes_from_outside(info.si_status)};
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(const std::vector<std::string>& command,
                                                          const std::vector<int>& inherited, Events events) {
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(events)));
  std::promise<int> spawned;
  const auto run = [self = child.get(), &command, &inherited, &spawned] {
    const int error = spawn(command, inherited, self->pid_);
    spawned.set_value(error);  // start() may return from here on, so its variables are not used
    if (error == 0) self->wait_for_end();
  };
  try {
    child->thread_ = std::thread(run);
  } catch (const std::system_error& none) {
    spawned.set_value(none.code().value());
  }
  const int error = spawned.get_future().get();
  if (error == 0) return child;
  child->has_ended_ = true;
  return fail(ErrorCode::io_failed, "cannot start " + command.front() + ": " + std::strerror(error));
}

ChildProcess::~ChildProcess() {
  kill();
  if (thread_.joinable()) thread_.join();
}

void ChildProcess::kill() {
  const std::lock_guard lock(mutex_);
  if (!has_ended_) ::kill(pid_, SIGKILL);
}

void ChildProcess::wait_for_end() {
  bool has_stopped = false;
  const std::int64_t oom_kills_before = kernels::num_oom_kills();
  for (;;) {
    siginfo_t info{};
    // The child is reaped below, under the lock: until then no other process can get its id.
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WSTOPPED | WNOWAIT) < 0) {
      if (errno == EINTR) continue;
      info.si_code = CLD_EXITED;  // other code of this process has reaped it
    }
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED) {
      ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG);
      if (!std::exchange(has_stopped, true) && events_.on_stopped) events_.on_stopped();
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      siginfo_t reaped{};
      ::waitid(P_PID, static_cast<id_t>(pid_), &reaped, WEXITED);
    }
    if (events_.on_ended)
      actors::retry_on_bad_alloc([&] { events_.on_ended(end_of(info, kernels::num_oom_kills() > oom_kills_before)); });
    return;
  }
}

}  // namespace pagoda::device_link
