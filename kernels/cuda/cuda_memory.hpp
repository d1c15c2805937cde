#pragma once

#include <cstddef>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// How many CUDA devices this process may use; 0 without a driver.
int device_count();

/// Zeroed memory of the current device (MemoryKind::device), or pinned host memory that it can copy from and to without
/// staging (MemoryKind::host). Errors: out_of_memory that says how much was asked.
Result<Buffer> allocate(std::size_t bytes, MemoryKind kind);

/// A CUDA stream of the current device. Work is issued at once on the caller's thread and runs in stream order; see
/// Stream. `wait` takes events of streams made by this function only.
Result<std::unique_ptr<Stream>> create_stream();

/// Ops::move_blocks on a stream of create_stream(): one asynchronous copy per run of neighbouring blocks. Between host
/// and device the host side must be pinned. The lists are read before it returns.
Status move_blocks(Stream& stream, const MoveBlocksParams& params);

}  // namespace pagoda::kernels::cuda
