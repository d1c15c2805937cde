#pragma once

/// The environment of a thread of a block: its indices, its block's barrier and shared memory, and its copies in
/// flight.

#include <cstddef>

#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local uint3 blockDim;
extern constinit thread_local uint3 gridDim;
inline constexpr int warpSize = 32;

/// Returns the block's dynamic shared memory, 1024-byte aligned, filled with 0xFF when the block starts.
void* dynamic_shared_memory();

/// Every thread of the block that has not returned must call these barriers.
void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned int) {}

/// Ends the kernel with an error.
[[noreturn]] void __trap();

/// cp.async: the bytes arrive when the thread waits for their group, so that a missing wait is detected. `valid_bytes`
/// are read; the rest of `bytes` becomes zero.
void async_copy(void* shared, const void* global, int bytes, int valid_bytes);
void async_copy_commit();
void async_copy_wait(int groups_left);

/// Lanes of the calling thread's warp that meet in one collective. `slot[lane]` belongs to each lane in `mask`.
struct WarpLanes {
  unsigned int mask = 0;
  void* slot[32] = {};
};

/// Waits for all lanes of `mask` that have not returned; the last to arrive calls `compute` for all. If lanes arrive
/// with another mask or another function, this is reported as a defect of the kernel.
void warp_collective(unsigned int mask, void (*compute)(WarpLanes& lanes), void* slot);

/// Returns the lane, 0 to 31, of the linear thread index.
int lane_index();
unsigned int __activemask();

}  // namespace cuda_emulator
