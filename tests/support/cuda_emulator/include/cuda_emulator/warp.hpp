#pragma once

/// Shuffles, votes and reductions of a warp. A value from a lane that takes no part has all bits set, so that its use
/// is detected.

#include <cstring>

#include "cuda_emulator/threads.hpp"

namespace cuda_emulator {

template <class T>
struct ShuffleSlot {
  T value;
  int source;
};

template <class T>
void compute_shuffle(WarpLanes& lanes) {
  T values[32];
  std::memset(static_cast<void*>(values), 0xFF, sizeof(values));
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes.mask >> lane & 1U) values[lane] = static_cast<const ShuffleSlot<T>*>(lanes.slot[lane])->value;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes.mask >> lane & 1U) == 0) continue;
    auto* slot = static_cast<ShuffleSlot<T>*>(lanes.slot[lane]);
    slot->value = values[slot->source];
  }
}

template <class T>
T shuffle_from(unsigned int mask, T value, int source) {
  ShuffleSlot<T> slot{value, source};
  warp_collective(mask, compute_shuffle<T>, &slot);
  return slot.value;
}

/// Returns the first lane of the calling lane's segment of `width` lanes.
inline int segment_start(int width) {
  return lane_index() & ~(width - 1);
}

template <class T>
T __shfl_sync(unsigned int mask, T value, int source, int width = 32) {
  return shuffle_from(mask, value, segment_start(width) | (source & (width - 1)));
}

template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = 32) {
  const int source = lane_index() ^ lane_mask;
  return shuffle_from(mask, value, source < segment_start(width) + width ? source : lane_index());
}

template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const int source = lane_index() + static_cast<int>(delta);
  return shuffle_from(mask, value, source < segment_start(width) + width ? source : lane_index());
}

template <class T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const int source = lane_index() - static_cast<int>(delta);
  return shuffle_from(mask, value, source >= segment_start(width) ? source : lane_index());
}

void __syncwarp(unsigned int mask = 0xFFFFFFFFU);
unsigned int __ballot_sync(unsigned int mask, int predicate);
inline int __any_sync(unsigned int mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
int __all_sync(unsigned int mask, int predicate);
unsigned int __match_any_sync(unsigned int mask, unsigned long long value);

template <class T, class Combine>
void compute_reduction(WarpLanes& lanes) {
  T total{};
  bool first = true;
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes.mask >> lane & 1U) == 0) continue;
    const T value = *static_cast<const T*>(lanes.slot[lane]);
    total = first ? value : Combine()(total, value);
    first = false;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes.mask >> lane & 1U) *static_cast<T*>(lanes.slot[lane]) = total;
  }
}

template <class Combine, class T>
T reduce_warp(unsigned int mask, T value) {
  warp_collective(mask, compute_reduction<T, Combine>, &value);
  return value;
}

struct CombineAdd {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct CombineMin {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct CombineMax {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct CombineAnd {
  unsigned int operator()(unsigned int a, unsigned int b) const { return a & b; }
};
struct CombineOr {
  unsigned int operator()(unsigned int a, unsigned int b) const { return a | b; }
};

inline int __reduce_add_sync(unsigned int mask, int value) {
  return reduce_warp<CombineAdd>(mask, value);
}
inline unsigned int __reduce_add_sync(unsigned int mask, unsigned int value) {
  return reduce_warp<CombineAdd>(mask, value);
}
inline int __reduce_min_sync(unsigned int mask, int value) {
  return reduce_warp<CombineMin>(mask, value);
}
inline unsigned int __reduce_min_sync(unsigned int mask, unsigned int value) {
  return reduce_warp<CombineMin>(mask, value);
}
inline int __reduce_max_sync(unsigned int mask, int value) {
  return reduce_warp<CombineMax>(mask, value);
}
inline unsigned int __reduce_max_sync(unsigned int mask, unsigned int value) {
  return reduce_warp<CombineMax>(mask, value);
}
inline unsigned int __reduce_and_sync(unsigned int mask, unsigned int value) {
  return reduce_warp<CombineAnd>(mask, value);
}
inline unsigned int __reduce_or_sync(unsigned int mask, unsigned int value) {
  return reduce_warp<CombineOr>(mask, value);
}

}  // namespace cuda_emulator
