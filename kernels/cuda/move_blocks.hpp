#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// From this many bytes per run of neighbouring blocks on, the copy engines move blocks; smaller pieces are moved by a
/// kernel that reads and writes pinned host memory itself, because a copy engine takes a few microseconds per piece
/// whatever its size. Where both are as fast was measured over a PCIe 5 link (docs/benchmarks/gpu.md).
constexpr std::int64_t kCopyEngineBytes = std::int64_t{512} << 10;

/// Ops::move_blocks. Between host and device the host side must be pinned. The lists are read before it returns. Cannot
/// be part of a graph. Each way moves block after block in the order of the lists as far as they depend on each other.
Status cuda_move_blocks(CudaStream& stream, const MoveBlocksParams& p);

/// By copy engines: one copy per run of neighbouring blocks, all that may be done in any order in one call.
Status move_blocks_by_copies(CudaStream& stream, const MoveBlocksParams& p);

/// By a kernel over all blocks that may be moved in any order.
Status move_blocks_by_kernel(CudaStream& stream, const MoveBlocksParams& p);

}  // namespace pagoda::kernels::cuda
