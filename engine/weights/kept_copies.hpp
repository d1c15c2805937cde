#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/device.hpp"

namespace pagoda::weights {

/// Kind of a copy of a weight.
enum class CopyKind : std::uint8_t {
  plain,      ///< the weight as it is stored, or converted
  quantized,  ///< part of a matrix that was packed or quantised, which takes longer than to read the copy from a file
};

/// Memory in which copies of weights outlive the process or the engine that made them, so that the next one finds them.
/// Thread-safe.
class KeptCopies {
 public:
  virtual ~KeptCopies() = default;

  struct CopyMemory {
    kernels::Buffer memory;
    bool is_filled = false;  ///< true: the memory holds the copy and must not be written; false: make the copy in it
  };
  /// Returns memory for the copy `key` of `bytes` bytes, aligned to 64 bytes; nothing when there is no room for it.
  virtual std::optional<CopyMemory> find(std::string_view key, std::size_t bytes, CopyKind kind) = 0;
  /// Call when all copies that find() returned are made: until then none counts as made.
  virtual void mark_complete() = 0;
  /// Returns the bytes of the copies that are already made and take no more memory.
  virtual std::int64_t filled_bytes() const { return 0; }
};

}  // namespace pagoda::weights
