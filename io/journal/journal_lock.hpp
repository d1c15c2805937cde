#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// The right to write a journal, or to continue its requests. Only one server at a time has this right. The lock is on
/// a file beside the journal, because a journal is renamed when the next one begins. The file has the process id of the
/// lock's owner. The system frees the lock when the process ends, however it ends.
class JournalLock {
 public:
  static constexpr const char* kSuffix = ".lock";

  /// `wait_for_own_ms`: time to wait if this process itself has the lock, for example for an engine that is ending.
  /// Errors: bad_config with the param `param` (another process has the lock, with its id in the message; the file
  /// cannot be made).
  static Result<std::shared_ptr<JournalLock>> take(const std::string& journal, const std::string& param = "journal",
                                                   std::int64_t wait_for_own_ms = 0);
  /// Like take(), for a journal that is only read: returns null if its folder is read-only and there is no lock file.
  static Result<std::shared_ptr<JournalLock>> take_to_read(const std::string& journal, const std::string& param);
  /// Returns whether a process, this one included, has the lock of a journal.
  static bool is_held(const std::string& journal);

  ~JournalLock();
  JournalLock(const JournalLock&) = delete;
  JournalLock& operator=(const JournalLock&) = delete;

 private:
  JournalLock(std::string path, int file) : path_(std::move(path)), file_(file) {}
  static Result<std::shared_ptr<JournalLock>> take(const std::string& journal, const std::string& param,
                                                   std::int64_t wait_for_own_ms, bool only_reads);

  std::string path_;
  int file_;
};

}  // namespace pagoda::io
