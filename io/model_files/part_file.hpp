#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A file that is named PATH.part until it is finished, so that no reader takes an incomplete file for a whole one. An
/// unfinished file is removed. Errors are io_failed, name the file, and have `out` as their parameter.
class PartFile {
 public:
  static constexpr std::string_view kEnding = ".part";

  /// Creates PATH.part; an existing one is truncated.
  static Result<PartFile> create(const std::filesystem::path& path);
  ~PartFile();
  PartFile(PartFile&& other) noexcept
      : path_(std::move(other.path_)), part_(std::exchange(other.part_, {})), file_(std::move(other.file_)) {}
  PartFile& operator=(PartFile&&) = delete;

  const std::filesystem::path& part() const { return part_; }

  /// Writes and flushes the bytes, so that other readers see them.
  Status write_at(std::size_t offset, std::span<const std::byte> bytes);
  /// Makes the file at least `size` bytes long; bytes that are not written are zeros.
  Status reach(std::size_t size);
  /// Renames the file to PATH.
  Status finish();

 private:
  PartFile() = default;
  Status check() const;

  std::filesystem::path path_;
  std::filesystem::path part_;  // empty after finish()
  std::ofstream file_;
};

}  // namespace pagoda::io
