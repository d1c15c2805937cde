#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/paged_attention.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Returns whether the tensor core kernels support the params: they read rows of keys and values in pieces of 16 bytes
/// and write pairs of floats.
bool fits_tensor_cores(const PagedAttentionParams& p) {
  constexpr std::int64_t kPieceBytes = 16;
  constexpr std::int64_t kMaxDim = 256;
  const KvCacheView& cache = p.cache;
  const void* out = p.narrow_out ? p.narrow_out.data : p.out;
  const std::int64_t row_bytes = cache.head_dim * static_cast<std::int64_t>(size_of(cache.dtype));
  return cache.dtype != DType::f32 && cache.head_dim <= kMaxDim && row_bytes % kPieceBytes == 0 &&
         all_aligned_16(cache.base, cache.block_bytes) && reinterpret_cast<std::uintptr_t>(out) % sizeof(float2) == 0;
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

AttentionArgs args_for(const PagedAttentionParams& p, const AttentionPlan& plan, const AttentionMemory& memory) {
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
  args.by_block_size = divider(p.cache.block_size);
  args.head_dim = static_cast<std::int32_t>(p.cache.head_dim);
  args.num_heads = static_cast<std::int32_t>(p.num_heads);
  args.by_kv_heads = divider(static_cast<std::int32_t>(p.cache.num_kv_heads));
  args.by_group = divider(plan.group);
  args.by_head_pieces = divider(std::max(1, args.head_dim / 4));
  args.plain_scores = p.softcap == 0.0F && p.alibi_slopes == nullptr && p.scale > 0.0F;
  args.score_factor = p.scale;
  args.power_factor = args.plain_scores ? p.scale * kLog2E : 1.0F;
  args.softcap = p.softcap;
  args.inverse_softcap = p.softcap > 0.0F ? 1.0F / p.softcap : 0.0F;
  args.alibi_slopes = p.alibi_slopes;
  args.window = p.window;
  args.first_position = p.first_position;
  args.out = out_rows(p.out, p.narrow_out);
  args.split_query_len = plan.split_query_len;
  args.by_split_row_tiles = divider(static_cast<std::int32_t>(std::max<std::int64_t>(1, plan.split_row_tiles)));
  args.split_run = plan.split_run;
  args.narrow_columns = narrow_columns(plan.padded_dim, plan.split_query_len * plan.group);
  args.counters = memory.counters;
  return args;
}

/// Sets the addresses in scratch of the partial results of `rows` query rows with `parts` parts each.
void set_parts(const PagedAttentionParams& p, const AttentionMemory& memory, std::int64_t rows, std::int32_t parts,
               AttentionArgs& args) {
  args.max_parts = parts;
  args.partial_sums = reinterpret_cast<float*>(memory.scratch.data());
  const std::int64_t floats = rows * p.num_heads * parts * args.head_dim;
  // The states follow the sums, at an even number of floats.
  args.partial_states = reinterpret_cast<float2*>(args.partial_sums + divide_up(floats, 2) * 2);
}

Status launch_tiles(cudaStream_t stream, const PagedAttentionParams& p, const AttentionPlan& plan,
                    const AttentionArgs& args, const AttentionLaunch& how) {
  if (!plan.tensor_cores) return launch_attention_plain(stream, args, how, p.cache.dtype);
  switch (p.cache.dtype) {
    case DType::f16:
      return launch_attention_tiles_f16(stream, args, how);
    case DType::fp8_e4m3:
      return launch_attention_tiles_fp8(stream, args, how);
    case DType::int8:
      return launch_attention_tiles_int8(stream, args, how);
    default:
      return launch_attention_tiles_bf16(stream, args, how);
  }
}

Status launch_split(cudaStream_t stream, const PagedAttentionParams& p, const AttentionPlan& plan,
                    const AttentionMemory& memory, AttentionArgs args) {
  set_parts(p, memory, plan.split_sequences_at_once * plan.split_query_len, plan.max_partitions, args);
  for (std::int64_t first = 0; first < p.num_sequences; first += plan.split_sequences_at_once) {
    const std::int64_t count = std::min(plan.split_sequences_at_once, p.num_sequences - first);
    args.first_sequence = static_cast<std::int32_t>(first);
    const AttentionLaunch how{.grid_x = plan.split_grid_x,
                              .grid_y = p.cache.num_kv_heads,
                              .grid_z = count * plan.split_row_tiles,
                              .rows = plan.tensor_cores ? plan.split_query_len * plan.group : plan.split_rows,
                              .split = true,
                              .padded_dim = plan.padded_dim};
    if (Status status = launch_tiles(stream, p, plan, args, how); !status) return status;
  }
  return {};
}

Status launch_whole(cudaStream_t stream, const PagedAttentionParams& p, const AttentionPlan& plan,
                    const AttentionMemory& memory, AttentionArgs args) {
  set_parts(
      p, memory,
      std::min(p.num_tokens > 0 ? p.num_tokens : p.num_sequences * p.max_query_len, p.num_sequences * p.max_query_len),
      plan.whole_shares, args);
  return launch_tiles(stream, p, plan, args,
                      {.grid_x = plan.whole_tiles * p.cache.num_kv_heads,
                       .grid_y = plan.whole_shares,
                       .rows = plan.whole_rows,
                       .padded_dim = plan.padded_dim});
}

}  // namespace

std::size_t attention_scratch_bytes(const PagedAttentionParams& p) {
  return plan_for(p).scratch_bytes;
}

Status cuda_paged_attention(cudaStream_t stream, const PagedAttentionParams& p, const AttentionMemory& memory) {
  const AttentionPlan plan = plan_for(p);
  if (plan.whole_rows == 0) {
    return fail(ErrorCode::unsupported, "paged_attention: head_dim " + std::to_string(p.cache.head_dim) +
                                            " needs more shared memory than a GPU has");
  }
  PAGODA_ASSERT(memory.scratch.size() >= plan.scratch_bytes, "paged_attention needs attention_scratch_bytes()");
  const AttentionArgs args = args_for(p, plan, memory);
  if (plan.split_query_len > 0) {
    if (Status status = launch_split(stream, p, plan, memory, args); !status) return status;
  }
  return plan.whole_tiles > 0 ? launch_whole(stream, p, plan, memory, args) : Status();
}

}  // namespace pagoda::kernels::cuda
