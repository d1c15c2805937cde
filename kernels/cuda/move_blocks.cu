#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cuda/block_runs.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/move_blocks.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;
/// Blocks are moved in pieces, so that few large blocks fill the device too.
constexpr std::int64_t kPieceBytes = std::int64_t{16} << 10;
constexpr std::int64_t kMaxPieces = 1024;

/// Moves block moves[2 i] to moves[2 i + 1], with one thread block per move and piece. A thread moves one T at a time.
template <class T>
__global__ void move_kernel(const std::byte* from_base, std::byte* to_base, std::int64_t block_bytes,
                            const std::int32_t* moves) {
  const std::int64_t count = block_bytes / static_cast<std::int64_t>(sizeof(T));
  const auto* from = reinterpret_cast<const T*>(from_base + moves[2 * blockIdx.x] * block_bytes);
  auto* to = reinterpret_cast<T*>(to_base + moves[2 * blockIdx.x + 1] * block_bytes);
  for (std::int64_t i = blockIdx.y * kThreads + threadIdx.x; i < count; i += gridDim.y * kThreads) to[i] = from[i];
}

struct CopyList {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
};

Status copy_in_any_order(const CopyList& copies, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first_of_attributes = 0;
  return check(cudaMemcpyBatchAsync(copies.to.data(), copies.from.data(), copies.bytes.data(), copies.to.size(),
                                    &attributes, &first_of_attributes, 1, stream),
               "move_blocks: cudaMemcpyBatchAsync");
#else
  for (std::size_t i = 0; i < copies.to.size(); ++i) {
    Status status = check(cudaMemcpyAsync(copies.to[i], copies.from[i], copies.bytes[i], cudaMemcpyDefault, stream),
                          "move_blocks: cudaMemcpyAsync");
    if (!status) return status;
  }
  return {};
#endif
}

/// Returns the average number of bytes of a run.
std::int64_t run_bytes(const MoveBlocksParams& p) {
  std::int64_t runs = 0;
  for_each_block_run(p.from, p.to, [&](std::int64_t, std::int64_t, std::int64_t) { ++runs; });
  return static_cast<std::int64_t>(p.from.size()) * p.block_bytes / runs;
}

}  // namespace

Status cuda_move_blocks(CudaStream& stream, const MoveBlocksParams& p) {
  if (p.from.empty()) return {};
  return run_bytes(p) >= kCopyEngineBytes ? move_blocks_by_copies(stream, p) : move_blocks_by_kernel(stream, p);
}

Status move_blocks_by_copies(CudaStream& stream, const MoveBlocksParams& p) {
  Status status;
  for_each_unordered_batch(p.from, p.to, p.from_base == p.to_base, [&](std::size_t first, std::size_t end) {
    if (!status) return;
    CopyList copies;
    const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t count) {
      copies.to.push_back(p.to_base + to * p.block_bytes);
      copies.from.push_back(p.from_base + from * p.block_bytes);
      copies.bytes.push_back(static_cast<std::size_t>(count * p.block_bytes));
    };
    for_each_block_run(p.from.subspan(first, end - first), p.to.subspan(first, end - first), add);
    status = copy_in_any_order(copies, stream.get());
  });
  return status;
}

Status move_blocks_by_kernel(CudaStream& stream, const MoveBlocksParams& p) {
  if (p.from.empty()) return {};
  const auto staged = stream.stage(2 * p.from.size() * sizeof(std::int32_t));
  if (!staged) return fail(staged.error());
  auto* moves = reinterpret_cast<std::int32_t*>(staged->host);
  for (std::size_t i = 0; i < p.from.size(); ++i) {
    moves[2 * i] = p.from[i];
    moves[2 * i + 1] = p.to[i];
  }
  Status status = stream.upload(*staged);
  const std::int64_t pieces = std::min(kMaxPieces, ceil_divide(p.block_bytes, kPieceBytes));
  const bool packed = all_aligned_16(p.from_base, p.to_base, p.block_bytes);
  const auto kernel = packed ? move_kernel<uint4> : move_kernel<std::byte>;
  for_each_unordered_batch(p.from, p.to, p.from_base == p.to_base, [&](std::size_t first, std::size_t end) {
    if (!status) return;
    const dim3 grid(static_cast<unsigned>(end - first), static_cast<unsigned>(pieces));
    status = launch("move_blocks", kernel, grid, dim3(kThreads), 0, stream.get(), p.from_base, p.to_base, p.block_bytes,
                    reinterpret_cast<const std::int32_t*>(staged->device) + 2 * first);
  });
  return status;
}

}  // namespace pagoda::kernels::cuda
