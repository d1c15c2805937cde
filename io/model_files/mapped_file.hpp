#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A whole file mapped read-only into memory. Movable; unmapped when destroyed. Pages are read when first touched, so
/// mapping a large checkpoint costs nothing by itself. The file must not be truncated while it is mapped: touching a
/// page that no longer exists raises SIGBUS.
class MappedFile {
 public:
  /// Errors: io_failed when the file is missing, unreadable or not a regular file; the message names it.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  /// Returns the memory of the pages that lie wholly in `part` to the system. Their contents do not change: a page that
  /// is touched again is read again.
  void drop_pages(std::span<const std::byte> part) const;
  /// Returns the path as it was given, for messages.
  const std::string& path() const { return path_; }

 private:
  MappedFile(void* data, std::size_t size, std::string path) : data_(data), size_(size), path_(std::move(path)) {}

  void* data_ = nullptr;  // null for an empty file
  std::size_t size_ = 0;
  std::string path_;
};

}  // namespace pagoda::io
