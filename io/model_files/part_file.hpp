#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A file that is called PATH.part until it is finished, so that nobody takes a part of it for the whole; one that is
/// never finished is removed. Errors are io_failed, name the file, and have `out` as their parameter.
class PartFile {
 public:
  static constexpr std::string_view kEnding = ".part";

  /// Makes PATH.part, or empties the one that is there.
  static Result<PartFile> create(const std::filesystem::path& path);
  ~PartFile();
  PartFile(PartFile&& other) noexcept
      : path_(std::move(other.path_)), part_(std::exchange(other.part_, {})), file_(std::move(other.file_)) {}
  PartFile& operator=(PartFile&&) = delete;

  const std::filesystem::path& part() const { return part_; }

  /// They are in the file then, for others to read.
  Status write_at(std::size_t offset, std::span<const std::byte> bytes);
  /// Makes the file at least `size` bytes long: what is not written is zeros.
  Status reach(std::size_t size);
  /// Gives the file its name.
  Status finish();

 private:
  PartFile() = default;
  Status check() const;

  std::filesystem::path path_;
  std::filesystem::path part_;  // empty once it is finished
  std::ofstream file_;
};

}  // namespace pagoda::io
