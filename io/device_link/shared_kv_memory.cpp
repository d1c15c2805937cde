#include "io/device_link/shared_kv_memory.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/cpu_memory.hpp"

namespace pagoda::device_link {
namespace {

// Layout of the file: PlanProgress, the device pool, the host pool, each at a multiple of kPagesBytes.
constexpr std::int64_t kPagesBytes = kernels::kFileAlignment;

std::int64_t whole_pieces(std::int64_t bytes) {
  return (bytes + kPagesBytes - 1) / kPagesBytes * kPagesBytes;
}

std::int64_t host_offset(const SharedKvMemory::Size& size) {
  return kPagesBytes + whole_pieces(size.device_bytes);
}

std::int64_t file_bytes(const SharedKvMemory::Size& size) {
  return host_offset(size) + whole_pieces(size.host_bytes);
}

tl::unexpected<Error> failed(const char* what) {
  return fail(ErrorCode::io_failed,
              std::string("memory that outlives worker processes cannot be ") + what + ": " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<SharedKvMemory>> SharedKvMemory::create(const Size& size) {
  const std::int64_t bytes = file_bytes(size);
  if (static_cast<std::size_t>(bytes) > kernels::available_cpu_memory()) {
    return fail(ErrorCode::out_of_memory,
                "the KV cache needs " + kernels::describe_allocation(static_cast<std::size_t>(bytes)) +
                    "; lower num_device_blocks or num_host_blocks",
                "num_device_blocks");
  }
  Descriptor file(::memfd_create("pagoda-kv", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), bytes) < 0) return failed("made");
  void* progress = ::mmap(nullptr, sizeof(execution::PlanProgress), PROT_READ, MAP_SHARED, file.get(), 0);
  if (progress == MAP_FAILED) return failed("mapped");
  return std::unique_ptr<SharedKvMemory>(new SharedKvMemory(std::move(file), progress));
}

SharedKvMemory::~SharedKvMemory() {
  ::munmap(progress_, sizeof(execution::PlanProgress));
}

StepId SharedKvMemory::last_plan() const {
  return static_cast<const execution::PlanProgress*>(progress_)->last_plan();
}

Status SharedKvMemory::clear() {
  const auto bytes = ::lseek(file_.get(), 0, SEEK_END);
  if (bytes < 0 || ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) < 0) {
    return failed("cleared");
  }
  return {};
}

Result<execution::KvPools> SharedKvMemory::map(kernels::Device& device, int file, const Size& size) {
  const auto piece = [&](std::int64_t offset, std::int64_t bytes) {
    return device.map(file, static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  };
  auto progress = piece(0, sizeof(execution::PlanProgress));
  if (!progress) return fail(std::move(progress.error()));
  auto device_pool = piece(kPagesBytes, size.device_bytes);
  if (!device_pool) return fail(std::move(device_pool.error()));
  auto host_pool = piece(host_offset(size), size.host_bytes);
  if (!host_pool) return fail(std::move(host_pool.error()));
  return execution::KvPools{.device = std::move(*device_pool),
                            .host = std::move(*host_pool),
                            .progress = std::move(*progress),
                            .touch_host = size.host_bytes > 0};
}

}  // namespace pagoda::device_link
