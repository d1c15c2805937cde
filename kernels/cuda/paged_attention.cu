#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/paged_attention.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// The tensor core kernels read rows of keys and values in pieces of 16 bytes and write pairs of floats.
bool fits_tensor_cores(const PagedAttentionParams& p) {
  constexpr std::int64_t kPieceBytes = 16;
  constexpr std::int64_t kMostDim = 256;
  const KvCacheView& cache = p.cache;
  const bool type_fits = cache.dtype == DType::f16 || cache.dtype == DType::bf16 || cache.dtype == DType::fp8_e4m3;
  const std::int64_t row_bytes = cache.head_dim * static_cast<std::int64_t>(size_of(cache.dtype));
  return type_fits && cache.head_dim <= kMostDim && row_bytes % kPieceBytes == 0 &&
         all_aligned_16(cache.base, cache.block_bytes) && reinterpret_cast<std::uintptr_t>(p.out) % sizeof(float2) == 0;
}

AttentionPlan plan_for(const PagedAttentionParams& p) {
  AttentionShape shape;
  shape.num_sequences = p.num_sequences;
  shape.num_tokens = p.num_tokens > 0 ? p.num_tokens : p.num_sequences * p.max_query_len;
  shape.max_query_len = p.max_query_len;
  shape.max_context_len = p.max_context_len;
  shape.num_heads = p.num_heads;
  shape.num_kv_heads = p.cache.num_kv_heads;
  shape.head_dim = p.cache.head_dim;
  shape.window = p.window;
  shape.tensor_cores = fits_tensor_cores(p);
  return plan_attention(shape, kAttentionScratchBytes);
}

AttentionArgs args_for(const PagedAttentionParams& p, const AttentionPlan& plan, std::span<std::byte> scratch) {
  AttentionArgs args{};
  args.query = p.query;
  args.query_stride = p.query_stride;
  args.query_start = p.query_start;
  args.context_len = p.context_len;
  args.block_tables = p.block_tables;
  args.max_blocks = p.max_blocks;
  args.num_sequences = static_cast<std::int32_t>(p.num_sequences);
  args.cache = p.cache.base;
  args.block_bytes = p.cache.block_bytes;
  args.value_offset = p.cache.part_bytes();
  args.scale_offset = p.cache.value_bytes();
  args.block_size = p.cache.block_size;
  args.head_dim = static_cast<std::int32_t>(p.cache.head_dim);
  args.num_heads = static_cast<std::int32_t>(p.num_heads);
  args.group = plan.group;
  args.plain_scores = p.softcap == 0.0F && p.alibi_slopes == nullptr;
  args.score_factor = args.plain_scores ? p.scale * kLog2E : p.scale;
  args.softcap = p.softcap;
  args.inverse_softcap = p.softcap > 0.0F ? 1.0F / p.softcap : 0.0F;
  args.alibi_slopes = p.alibi_slopes;
  args.window = p.window;
  args.out = p.out;
  args.split_query_len = plan.split_query_len;
  args.max_partitions = plan.max_partitions;
  args.split_row_tiles = static_cast<std::int32_t>(plan.split_row_tiles);
  args.partial_sums = reinterpret_cast<float*>(scratch.data());
  const std::int64_t rows = plan.split_sequences_at_once * plan.split_query_len * p.num_heads * plan.max_partitions;
  // Behind the sums; these are an even number of floats or there is one more.
  args.partial_states = reinterpret_cast<float2*>(args.partial_sums + divide_up(rows * args.head_dim, 2) * 2);
  return args;
}

Status launch_tiles(cudaStream_t stream, const PagedAttentionParams& p, const AttentionPlan& plan,
                    const AttentionArgs& args, const AttentionLaunch& how) {
  if (!plan.tensor_cores) return launch_attention_plain(stream, args, how, p.cache.dtype);
  switch (p.cache.dtype) {
    case DType::f16:
      return launch_attention_tiles_f16(stream, args, how);
    case DType::fp8_e4m3:
      return launch_attention_tiles_fp8(stream, args, how);
    default:
      return launch_attention_tiles_bf16(stream, args, how);
  }
}

Status launch_split(cudaStream_t stream, const PagedAttentionParams& p, const AttentionPlan& plan, AttentionArgs args) {
  for (std::int64_t first = 0; first < p.num_sequences; first += plan.split_sequences_at_once) {
    const std::int64_t count = std::min(plan.split_sequences_at_once, p.num_sequences - first);
    args.first_sequence = static_cast<std::int32_t>(first);
    const AttentionLaunch how{.grid_x = plan.split_grid_x,
                              .grid_y = p.cache.num_kv_heads,
                              .grid_z = count * plan.split_row_tiles,
                              .rows = plan.split_rows,
                              .split = true,
                              .padded_dim = plan.padded_dim};
    Status status = launch_tiles(stream, p, plan, args, how);
    if (status && plan.max_partitions > 1) status = launch_attention_merge(stream, args, count);
    if (!status) return status;
  }
  return {};
}

}  // namespace

std::size_t attention_scratch_bytes(const PagedAttentionParams& p) {
  return plan_for(p).scratch_bytes(p.num_heads, p.cache.head_dim);
}

Status cuda_paged_attention(cudaStream_t stream, const PagedAttentionParams& p, std::span<std::byte> scratch) {
  const AttentionPlan plan = plan_for(p);
  if (plan.whole_rows == 0) {
    return fail(ErrorCode::unsupported, "paged_attention: head_dim " + std::to_string(p.cache.head_dim) +
                                            " needs more shared memory than a GPU has");
  }
  PAGODA_ASSERT(scratch.size() >= plan.scratch_bytes(p.num_heads, p.cache.head_dim),
                "paged_attention needs attention_scratch_bytes()");
  const AttentionArgs args = args_for(p, plan, scratch);
  if (plan.split_query_len > 0) {
    if (Status status = launch_split(stream, p, plan, args); !status) return status;
  }
  if (plan.whole_tiles == 0) return {};
  return launch_tiles(stream, p, plan, args,
                      {.grid_x = plan.whole_tiles,
                       .grid_y = p.cache.num_kv_heads,
                       .rows = plan.whole_rows,
                       .padded_dim = plan.padded_dim});
}

}  // namespace pagoda::kernels::cuda
