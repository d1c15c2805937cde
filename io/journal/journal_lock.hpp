#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// The right to write a journal, or to go on with its requests: one server at a time has it. The lock is on a file
/// beside the journal, since a journal is moved when the next begins; the file has the process id of its holder. The
/// system frees the lock when the process ends, however it ends.
class JournalLock {
 public:
  static constexpr const char* kSuffix = ".lock";

  /// `wait_for_own_ms`: how long to wait where this process itself holds the lock, as an engine does that is ending.
  /// Errors: bad_config (another holds it: with that process's id; the file cannot be made), param `param`.
  static Result<std::shared_ptr<JournalLock>> take(const std::string& journal, const std::string& param = "journal",
                                                   std::int64_t wait_for_own_ms = 0);
  /// Of a journal that is only read: as take, but nothing where its folder is read-only and nobody holds the lock.
  static Result<std::shared_ptr<JournalLock>> take_to_read(const std::string& journal, const std::string& param);
  /// Whether somebody, of this process too, holds the lock of a journal.
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
