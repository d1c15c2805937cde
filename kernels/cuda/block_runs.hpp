#pragma once

#include <cstdint>
#include <span>

#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Calls run(from, to, count) for each longest run of moves whose sources and targets both are neighbours, in the order
/// of the lists: (3->7, 4->8, 9->1) gives (3, 7, 2) and (9, 1, 1). A run never overlaps itself, so one copy may move it
/// at once.
template <class Run>
void for_each_block_run(std::span<const std::int32_t> from, std::span<const std::int32_t> to, const Run& run) {
  PAGODA_ASSERT(from.size() == to.size(), "each moved block has a source and a target");
  for (std::size_t first = 0; first < from.size();) {
    std::size_t end = first + 1;
    while (end < from.size() && from[end] == from[end - 1] + 1 && to[end] == to[end - 1] + 1 &&
           from[end] != to[first] && to[end] != from[first]) {
      ++end;
    }
    run(std::int64_t{from[first]}, std::int64_t{to[first]}, static_cast<std::int64_t>(end - first));
    first = end;
  }
}

}  // namespace pagoda::kernels::cuda
