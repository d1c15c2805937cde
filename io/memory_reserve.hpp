#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Memory that is reserved for the moment when no other memory is left. It is address space of the process that is
/// never written, so it is not resident memory.
///
/// The reserve installs the process's new-handler. If operator new finds no memory, the handler releases the reserve
/// and operator new tries again. So running work can finish, also in actors and libraries that cannot handle a failed
/// allocation. Callers must refuse new work until the memory can be reserved again (is_short). An allocation that does
/// not fit even then throws std::bad_alloc, and the reserve is taken again. Allocations by malloc, which has no
/// handler, are not covered.
class MemoryReserve {
 public:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMinBytes = std::size_t{1} << 20;

  /// A process may have only one reserve. If `bytes` cannot be reserved, the reserve is smaller (down to kMinBytes), or
  /// begins released.
  explicit MemoryReserve(std::size_t bytes = kBytes);
  /// Restores the previous new-handler.
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// Tries to reserve the memory again if it was released. Returns whether it is still released, so that memory is
  /// short. Logs each change. Any thread.
  bool is_short();
  /// Tries to reserve the memory again if it was released. Any thread.
  void restore() { is_short(); }

 private:
  void (*previous_)();
};

using SharedReserve = std::shared_ptr<MemoryReserve>;

/// While an object lives, allocations of its thread do not use the reserve. Use it for large allocations whose failure
/// affects only the current work.
class WithoutReserve {
 public:
  WithoutReserve();
  ~WithoutReserve();
  WithoutReserve(const WithoutReserve&) = delete;
  WithoutReserve& operator=(const WithoutReserve&) = delete;
};

/// Returns the error of a request for which there is no memory: queue_full, with a time after which to try again.
Error no_memory();
/// Tries to reserve the memory again (is_short). Returns no_memory() if that fails, so that new work must be refused.
/// Returns nothing if the memory is reserved, or if `reserve` is null.
std::optional<Error> refusal(const SharedReserve& reserve);

}  // namespace pagoda::io
