/// A library to preload: one allocation of the process, whichever thread makes it, fails as if there were no memory.
///
/// PAGODA_FAIL_ALLOCATION names a file of two 64-bit numbers that a test maps, too. The first counts down with each
/// allocation by operator new; the one that brings it from 1 to 0 fails. 0 and below: none does. The second counts
/// failures.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

struct Control {
  std::atomic<std::int64_t> countdown;
  std::atomic<std::int64_t> failures;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

Control* control = nullptr;

__attribute__((constructor)) void map_control() {
  const char* path = std::getenv("PAGODA_FAIL_ALLOCATION");
  if (path == nullptr) return;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) std::abort();
  void* mapped = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) std::abort();
  control = static_cast<Control*>(mapped);
}

bool must_fail() {
  if (control == nullptr || control->countdown.load(std::memory_order_relaxed) <= 0) return false;
  if (control->countdown.fetch_sub(1) != 1) return false;
  ++control->failures;
  return true;
}

void* allocate(std::size_t size) {
  return must_fail() ? nullptr : std::malloc(size > 0 ? size : 1);
}

void* allocate(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return must_fail() ? nullptr : std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return or_throw(allocate(size));
}
void* operator new[](std::size_t size) {
  return or_throw(allocate(size));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
