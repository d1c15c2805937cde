#include "io/device_link/shared_weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/cpu_memory.hpp"

namespace pagoda::device_link {
namespace {

constexpr std::size_t kMaxCopies = 65'536;
constexpr std::uint64_t kAlignment = 64;

struct Copy {
  std::uint64_t key = 0;
  std::uint64_t offset = 0;  ///< offset in the data
  std::uint64_t bytes = 0;
};

/// Beginning of the file; the data begin at kDataOffset, a multiple of the huge page size.
struct Directory {
  std::atomic<std::uint32_t> is_sealed;
  std::uint32_t num_copies = 0;
  std::uint64_t used = 0;
  std::array<Copy, kMaxCopies> copies;
};
constexpr std::size_t kDataOffset = kernels::kFileAlignment;
static_assert(sizeof(Directory) <= kDataOffset && std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t whole_pages(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + kernels::kFileAlignment - 1) / kernels::kFileAlignment *
         kernels::kFileAlignment;
}

}  // namespace

Result<std::unique_ptr<SharedWeights>> SharedWeights::create(std::int64_t bytes) {
  // Each copy is aligned, so there are gaps between copies.
  const std::int64_t with_gaps = bytes + static_cast<std::int64_t>(kMaxCopies * kAlignment);
  Descriptor file(::memfd_create("pagoda-weights", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(kDataOffset + whole_pages(with_gaps))) < 0) {
    return fail(
        ErrorCode::io_failed,
        std::string("memory for weights that outlives worker processes cannot be made: ") + std::strerror(errno));
  }
  return std::unique_ptr<SharedWeights>(new SharedWeights(std::move(file), with_gaps));
}

struct MappedWeights::Mapping {
  kernels::Buffer directory_memory;
  kernels::Buffer data;
  bool is_sealed = false;
  kernels::Device* to_touch_it = nullptr;  // device that allocates the memory before the first copy; null: not needed

  Directory& directory() const { return *directory_memory.as<Directory>(); }

  void protect() {
    is_sealed = true;
    // Protects the next process from stray writes of this one. A failure is harmless: nothing else depends on it.
    ::mprotect(data.data(), whole_pages(static_cast<std::int64_t>(data.bytes())), PROT_READ);
    ::mprotect(directory_memory.data(), kDataOffset, PROT_READ);
  }
};

Result<std::shared_ptr<MappedWeights>> MappedWeights::map(kernels::Device& device, int file, std::int64_t bytes,
                                                          bool touch) {
  auto directory = device.map(file, 0, sizeof(Directory));
  if (!directory) return fail(std::move(directory.error()));
  auto data = device.map(file, kDataOffset, static_cast<std::size_t>(bytes));
  if (!data) return fail(std::move(data.error()));
  auto mapping = std::make_shared<Mapping>();
  mapping->directory_memory = std::move(*directory);
  mapping->data = std::move(*data);
  Directory& entries = mapping->directory();
  if (entries.is_sealed.load(std::memory_order_acquire) != 0) {
    mapping->protect();
  } else {
    entries.num_copies = 0;
    entries.used = 0;
    if (touch) mapping->to_touch_it = &device;
  }
  return std::shared_ptr<MappedWeights>(new MappedWeights(std::move(mapping)));
}

std::optional<weights::KeptCopies::CopyMemory> MappedWeights::find(std::string_view key, std::size_t bytes,
                                                                   weights::CopyKind /*kind*/) {
  const std::lock_guard lock(mutex_);
  Directory& directory = mapping_->directory();
  const std::uint64_t hash = std::hash<std::string_view>()(key);
  const auto place = [&](std::uint64_t offset, bool is_filled) {
    // The buffer keeps the mapping alive.
    return CopyMemory{
        kernels::Buffer(mapping_->data.as<std::byte>() + offset, bytes, [mapping = mapping_](void*, std::size_t) {}),
        is_filled};
  };
  if (mapping_->is_sealed) {
    for (const Copy& copy :
         std::span(directory.copies).first(std::min<std::size_t>(directory.num_copies, kMaxCopies))) {
      if (copy.key == hash && copy.bytes == bytes && copy.offset + bytes <= mapping_->data.bytes())
        return place(copy.offset, true);
    }
    return std::nullopt;
  }
  if (auto* const device = std::exchange(mapping_->to_touch_it, nullptr)) {
    // If there is not enough memory for all copies, this one is not kept; later copies try without touching.
    if (!device->touch(mapping_->data, [](double) {})) return std::nullopt;
  }
  const std::uint64_t offset = (directory.used + kAlignment - 1) / kAlignment * kAlignment;
  if (directory.num_copies == kMaxCopies || offset + bytes > mapping_->data.bytes()) return std::nullopt;
  directory.copies[directory.num_copies++] = {hash, offset, bytes};
  directory.used = offset + bytes;
  return place(offset, false);
}

void MappedWeights::mark_complete() {
  const std::lock_guard lock(mutex_);
  if (mapping_->is_sealed) return;
  mapping_->directory().is_sealed.store(1, std::memory_order_release);
  mapping_->protect();
}

}  // namespace pagoda::device_link
