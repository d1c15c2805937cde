#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>

#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Calls run(from, to, count) for each longest run of moves whose sources are neighbours and whose targets are
/// neighbours, in the order of the lists: (3->7, 4->8, 9->1) gives (3, 7, 2) and (9, 1, 1). A run never overlaps
/// itself, so one copy may move it.
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

/// Calls batch(first, end) for each longest stretch of moves that may be done in any order: the stretch writes no block
/// twice and, if sources and targets lie in one pool, no block is both read and written. Stretches done one after
/// another give the result of the moves done one by one.
template <class Batch>
void for_each_unordered_batch(std::span<const std::int32_t> from, std::span<const std::int32_t> to, bool one_pool,
                              const Batch& batch) {
  PAGODA_ASSERT(from.size() == to.size(), "each moved block has a source and a target");
  std::unordered_set<std::int32_t> read;
  std::unordered_set<std::int32_t> written;
  std::size_t first = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool depends = written.contains(to[i]) || (one_pool && (written.contains(from[i]) || read.contains(to[i])));
    if (depends) {
      batch(first, i);
      first = i;
      read.clear();
      written.clear();
    }
    read.insert(from[i]);
    written.insert(to[i]);
  }
  if (first < from.size()) batch(first, from.size());
}

}  // namespace pagoda::kernels::cuda
