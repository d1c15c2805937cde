#include "io/model_files/mapped_file.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pagoda::io {
namespace {

tl::unexpected<Error> os_failure(const std::string& path, const char* what, int error_number) {
  return fail(ErrorCode::io_failed, path + ": " + what + ": " + std::generic_category().message(error_number));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  std::string name = path.string();
  // O_NONBLOCK: the open call must not hang if the path is a pipe.
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return os_failure(name, "cannot open", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return os_failure(name, "cannot stat", errno);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::io_failed, name + ": not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return MappedFile(nullptr, 0, std::move(name));
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return os_failure(name, "cannot map", errno);
  return MappedFile(data, size, std::move(name));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<std::size_t>(part.data() - bytes().data());
  const std::size_t begin = (first + page - 1) / page * page;
  const std::size_t end = (first + part.size()) / page * page;
  // A hint that fails only costs memory.
  if (begin < end) ::madvise(static_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace pagoda::io
