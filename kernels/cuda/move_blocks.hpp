#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// From this many bytes per run of neighbouring blocks on, the copy engines move blocks. Smaller pieces are moved by a
/// kernel that reads and writes pinned host memory itself, because a copy engine takes a few microseconds per piece of
/// any size. The limit was measured over a PCIe 5 link (docs/benchmarks/gpu.md).
constexpr std::int64_t kCopyEngineBytes = std::int64_t{512} << 10;

/// Ops::move_blocks. Between host and device the host side must be pinned. The lists are read before the call returns.
/// Cannot be part of a graph. Both implementations move dependent blocks in the order of the lists.
Status cuda_move_blocks(CudaStream& stream, const MoveBlocksParams& p);

/// Moves blocks by copy engines: one copy per run of neighbouring blocks; one call enqueues all copies that may be done
/// in any order.
Status move_blocks_by_copies(CudaStream& stream, const MoveBlocksParams& p);

/// Moves blocks by a kernel; one launch moves all blocks that may be moved in any order.
Status move_blocks_by_kernel(CudaStream& stream, const MoveBlocksParams& p);

}  // namespace pagoda::kernels::cuda
