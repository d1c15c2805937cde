/// The operators new and delete of a process in which one allocation can be made to fail as if there were no memory. As
/// a library to preload, PAGODA_FAIL_ALLOCATION names the file of an AllocationControl.

#include "tests/preload/fail_allocation.hpp"

#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pagoda::test {

std::atomic<AllocationControl*> allocation_control = nullptr;

}  // namespace pagoda::test

namespace {

using pagoda::test::allocation_control;
using pagoda::test::AllocationControl;

__attribute__((constructor)) void map_control() {
  const char* path = std::getenv("PAGODA_FAIL_ALLOCATION");
  if (path == nullptr) return;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) std::abort();
  void* mapped = ::mmap(nullptr, sizeof(AllocationControl), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) std::abort();
  allocation_control = static_cast<AllocationControl*>(mapped);
}

bool must_fail(std::size_t size) {
  AllocationControl* const control = allocation_control.load(std::memory_order_relaxed);
  if (control == nullptr || control->countdown.load(std::memory_order_relaxed) <= 0) return false;
  if (static_cast<std::int64_t>(size) < control->smallest.load(std::memory_order_relaxed)) return false;
  if (control->countdown.fetch_sub(1) != 1) return false;
  ++control->failures;
  return true;
}

/// As the standard has operator new: the new-handler is called until there is memory, or it throws.
template <class Take>
void* allocate(std::size_t size, Take take) {
  std::int64_t in_vain = must_fail(size) ? 1 + allocation_control.load()->tries_in_vain : 0;
  for (;;) {
    if (in_vain-- <= 0) {
      if (void* const memory = take()) return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* allocate(std::size_t size) {
  return allocate(size, [size] { return std::malloc(size > 0 ? size : 1); });
}

void* allocate(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return allocate(size, [=] { return std::aligned_alloc(unit, (size + unit - 1) / unit * unit); });
}

void* allocate_or_null(std::size_t size) noexcept {
  try {
    return allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, alignment);
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
