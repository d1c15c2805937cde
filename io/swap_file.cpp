#include "io/swap_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pagoda::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> refused(const char* what, const std::string& folder, int error,
                              ErrorCode code = ErrorCode::io_failed) {
  return fail(code, std::string("swap_dir: cannot ") + what + " " + folder + ": " + std::strerror(error), "swap_dir");
}

}  // namespace

Result<kernels::Buffer> map_swap_file(const std::string& folder, std::int64_t bytes) {
  std::string path = folder + "/pagoda-swap-XXXXXX";
  const Descriptor file(::mkstemp(path.data()));
  if (file.get() < 0) return refused("make a file in", folder, errno, ErrorCode::bad_config);
  if (::unlink(path.c_str()) != 0) return refused("unlink its own file in", folder, errno);
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    if (error != ENOSPC && error != EFBIG) return refused("reserve space in", folder, error);
    return fail(ErrorCode::out_of_memory,
                "swap_dir: " + folder + " has no room for a swap file of " + std::to_string(bytes >> 20) +
                    " MiB; lower swap_space or num_host_blocks",
                "swap_dir");
  }
  const auto size = static_cast<std::size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return refused("map a file in", folder, errno);
  return kernels::Buffer(data, size, [](void* at, std::size_t length) { ::munmap(at, length); });
}

}  // namespace pagoda::io
