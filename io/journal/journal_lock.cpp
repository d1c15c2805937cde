#include "io/journal/journal_lock.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pagoda::io {
namespace {

/// Returns whether the open file is still the one at the path: the last owner of the lock may have removed it.
bool is_still_at(int file, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

/// Returns the process id that the lock's owner has written; empty if it is not written yet.
std::string holder_of(int file) {
  std::array<char, 16> text{};
  const auto length = ::pread(file, text.data(), text.size() - 1, 0);
  return {text.data(), length > 0 ? std::strspn(text.data(), "0123456789") : 0};
}

/// Returns whether the lock was taken; if not, errno has the reason. Waits at least kReadersMs, because is_held() of
/// another process takes the lock for a moment.
bool try_lock(int file, std::int64_t wait_for_own_ms) {
  constexpr std::int64_t kReadersMs = 50;
  constexpr std::int64_t kPauseMs = 10;
  for (std::int64_t waited_ms = 0; ::flock(file, LOCK_EX | LOCK_NB) != 0; waited_ms += kPauseMs) {
    const int error = errno;
    const bool is_own = holder_of(file) == std::to_string(::getpid());
    errno = error;
    if (error != EWOULDBLOCK || waited_ms >= std::max(kReadersMs, is_own ? wait_for_own_ms : 0)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<JournalLock>> JournalLock::take(const std::string& journal, const std::string& param,
                                                       std::int64_t wait_for_own_ms) {
  return take(journal, param, wait_for_own_ms, /*only_reads=*/false);
}

Result<std::shared_ptr<JournalLock>> JournalLock::take_to_read(const std::string& journal, const std::string& param) {
  return take(journal, param, 0, /*only_reads=*/true);
}

Result<std::shared_ptr<JournalLock>> JournalLock::take(const std::string& journal, const std::string& param,
                                                       std::int64_t wait_for_own_ms, bool only_reads) {
  const std::string path = journal + kSuffix;
  for (;;) {
    // Not through a symbolic link, which could lead to any file: a lock file is emptied.
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 && only_reads && (errno == EROFS || errno == EACCES)) {
      file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
      if (file < 0 && errno == ENOENT) return nullptr;
    }
    if (file < 0) {
      return fail(ErrorCode::bad_config, param + ": cannot make " + path + ": " + std::strerror(errno), param);
    }
    std::shared_ptr<JournalLock> lock(new JournalLock(path, file));
    if (!try_lock(file, wait_for_own_ms)) {
      const int error = errno;
      lock->path_.clear();  // the file belongs to another process
      if (error != EWOULDBLOCK) {
        return fail(ErrorCode::bad_config, param + ": cannot lock " + path + ": " + std::strerror(error), param);
      }
      const std::string holder = holder_of(file);
      return fail(ErrorCode::bad_config,
                  param + ": " + journal + " is in use" + (holder.empty() ? "" : " by process " + holder) +
                      "; two servers cannot write one journal or continue the requests of a live server",
                  param);
    }
    if (!is_still_at(file, path)) {
      lock->path_.clear();
      continue;
    }
    const std::string id = std::to_string(::getpid()) + "\n";
    if (::ftruncate(file, 0) != 0 || ::pwrite(file, id.data(), id.size(), 0) < 0) {
      // Harmless: only an error message lacks the id then.
    }
    return lock;
  }
}

bool JournalLock::is_held(const std::string& journal) {
  const int file = ::open((journal + kSuffix).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return is_held;
}

JournalLock::~JournalLock() {
  if (!path_.empty()) ::unlink(path_.c_str());  // before the lock is freed, so no other process has it
  ::close(file_);
}

}  // namespace pagoda::io
