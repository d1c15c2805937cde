#include "io/memory_reserve.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include "engine/routing/queue_full.hpp"

namespace pagoda::io {
namespace {

constexpr auto kBetweenTrims = std::chrono::milliseconds(500);

/// State of the reserve; global, because the process has one new-handler. Its functions must not allocate.
struct State {
  std::mutex mutex;
  std::size_t bytes = 0;  ///< 0: there is no reserve
  void* memory = nullptr;
  std::uint64_t times_released = 0;
  bool is_reported = false;  ///< whether the log has reported that memory is short
  std::chrono::steady_clock::time_point next_trim;

  bool reserve() {
    if (memory != nullptr) return true;
    void* const taken = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken != MAP_FAILED) memory = taken;
    return memory != nullptr;
  }

  /// Returns freed memory of the heap to the system, then tries again. Trims at most once per kBetweenTrims, because a
  /// trim is slow.
  bool reserve_after_trim() {
#if defined(__GLIBC__)
    const auto now = std::chrono::steady_clock::now();
    if (now < next_trim) return false;
    next_trim = now + kBetweenTrims;
    return malloc_trim(0) != 0 && reserve();
#else
    return false;
#endif
  }

  void release() {
    if (memory == nullptr) return;
    ::munmap(memory, bytes);
    memory = nullptr;
    ++times_released;
  }
};

State state;
/// Value of times_released at which this thread last tried an allocation again. If the handler is called again at the
/// same value, the allocation does not fit: it fails, and the reserve is taken again.
thread_local std::uint64_t tried_after = 0;
thread_local int without_reserve = 0;

void on_no_memory() {
  if (without_reserve > 0) throw std::bad_alloc();
  const std::lock_guard lock(state.mutex);
  state.release();
  if (tried_after == state.times_released) {
    state.reserve();
    throw std::bad_alloc();
  }
  tried_after = state.times_released;
}

}  // namespace

MemoryReserve::MemoryReserve(std::size_t bytes) {
  const std::lock_guard lock(state.mutex);
  PAGODA_ASSERT(state.bytes == 0, "a process has one new-handler");
  for (state.bytes = bytes; !state.reserve() && state.bytes > kMinBytes;) state.bytes /= 2;
  if (state.bytes < bytes)
    spdlog::warn("memory is short: {} MiB are put aside, not {}", state.bytes >> 20, bytes >> 20);
  previous_ = std::set_new_handler(on_no_memory);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(previous_);
  const std::lock_guard lock(state.mutex);
  state.release();
  state.bytes = 0;
}

bool MemoryReserve::is_short() {
  bool is_out = false;
  bool is_news = false;
  {
    const std::lock_guard lock(state.mutex);
    is_out = !state.reserve() && !state.reserve_after_trim();
    is_news = is_out != state.is_reported;
    state.is_reported = is_out;
  }
  if (is_news && is_out) spdlog::warn("memory is out: what runs goes on with a reserve, new requests are refused");
  if (is_news && !is_out) spdlog::info("there is memory again");
  return is_out;
}

WithoutReserve::WithoutReserve() {
  ++without_reserve;
}

WithoutReserve::~WithoutReserve() {
  --without_reserve;
}

Error no_memory() {
  return {ErrorCode::queue_full, "the server is out of memory", {}, routing::kRetryAfterMs};
}

std::optional<Error> refusal(const SharedReserve& reserve) {
  if (reserve == nullptr || !reserve->is_short()) return std::nullopt;
  return no_memory();
}

}  // namespace pagoda::io
