#include "io/model_files/part_file.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace pagoda::io {

Result<PartFile> PartFile::create(const std::filesystem::path& path) {
  PartFile file;
  file.path_ = path;
  file.part_ = path;
  file.part_ += kEnding;
  errno = 0;
  file.file_.open(file.part_, std::ios::binary | std::ios::trunc);
  if (Status status = file.check(); !status) {
    file.part_.clear();  // a file that could not be opened is not removed
    return fail(std::move(status.error()));
  }
  return file;
}

PartFile::~PartFile() {
  if (part_.empty()) return;  // finished, or moved from
  file_.close();
  std::error_code error;
  std::filesystem::remove(part_, error);
}

Status PartFile::write_at(std::size_t offset, std::span<const std::byte> bytes) {
  errno = 0;
  file_.seekp(static_cast<std::streamoff>(offset));
  file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file_.flush();
  return check();
}

Status PartFile::reach(std::size_t size) {
  std::error_code error;
  if (std::filesystem::file_size(part_, error) < size && !error) std::filesystem::resize_file(part_, size, error);
  if (!error) return {};
  return fail(ErrorCode::io_failed, "cannot write " + part_.string() + ": " + error.message(), "out");
}

Status PartFile::finish() {
  errno = 0;
  file_.close();
  if (Status status = check(); !status) return status;
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error) {
    return fail(ErrorCode::io_failed, "cannot rename " + part_.string() + ": " + error.message(), "out");
  }
  part_.clear();
  return {};
}

Status PartFile::check() const {
  if (file_) return {};
  const int reason = errno;
  return fail(ErrorCode::io_failed,
              "cannot write " + part_.string() + (reason != 0 ? ": " + std::generic_category().message(reason) : ""),
              "out");
}

}  // namespace pagoda::io
