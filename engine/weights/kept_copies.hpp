#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/device.hpp"

namespace pagoda::weights {

/// Memory in which the copies that are made of weights outlive the process, or the engine, that has made them, so that
/// the next one finds them. Thread-safe.
class KeptCopies {
 public:
  virtual ~KeptCopies() = default;

  struct Place {
    kernels::Buffer memory;
    bool is_made = false;  ///< it holds the copy, and may not be written; else it is to be made in it
  };
  /// Of the copy `key`, which is `bytes` long, aligned to 64 bytes. None where there is no room for it.
  virtual std::optional<Place> find(std::string_view key, std::size_t bytes) = 0;
  /// Of the copies that are made, and take no more memory.
  virtual std::int64_t made_bytes() const { return 0; }
};

}  // namespace pagoda::weights
