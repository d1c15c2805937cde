#pragma once

/// Blocks of one stream run one after the other on the stream's thread, so shared memory is thread-local memory of that
/// thread.

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif
