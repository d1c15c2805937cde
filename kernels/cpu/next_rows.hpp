#pragma once

#include <cstdint>

namespace pagoda::kernels {

/// Rows that a kernel prefetches while it computes, so that memory is read at an even rate.
struct NextRows {
  const void* const* rows = nullptr;
  std::int64_t count = 0;
  std::int64_t row_bytes = 0;
};

}  // namespace pagoda::kernels
