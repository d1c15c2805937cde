#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kMergeThreads = 128;

// partial_states, partial_sums -> out [tokens, num_heads * head_dim]. Grid (heads, query rows, sequences of the slice).
__global__ void __launch_bounds__(kMergeThreads) attention_merge(const AttentionArgs args) {
  const std::int32_t sequence = args.first_sequence + static_cast<std::int32_t>(blockIdx.z);
  const std::int32_t query_start = args.query_start[sequence];
  const std::int32_t query_len = args.query_start[sequence + 1] - query_start;
  const PackedRow at{static_cast<std::int32_t>(blockIdx.y), static_cast<std::int32_t>(blockIdx.x)};
  if (at.row >= query_len || query_len > args.split_query_len) return;
  const PartitionRange range = partitions_of(args, query_len, args.context_len[sequence]);
  const std::int32_t count = range.end - range.first;
  if (count <= 1) return;  // has been written to out already

  const std::int64_t first = partial_index(args, sequence, at, 0);
  const float2* states = args.partial_states + first;
  float* out = args.out + (std::int64_t{query_start + at.row} * args.num_heads + at.head) * args.head_dim;
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x); d < args.head_dim; d += kMergeThreads) {
    const float* sums = args.partial_sums + first * args.head_dim + d;
    SoftmaxState state{states[0].x, states[0].y};
    float sum = sums[0];
#pragma unroll 4
    for (std::int32_t p = 1; p < count; ++p) {
      const float2 later = states[p];
      const MergedState merged = merge(state, {later.x, later.y});
      sum = merge_sum(merged, sum, sums[std::int64_t{p} * args.head_dim]);
      state = merged.state;
    }
    out[d] = __fmul_rn(sum, __frcp_rn(state.total));
  }
}

}  // namespace

Status launch_attention_merge(cudaStream_t stream, const AttentionArgs& args, std::int64_t num_sequences) {
  const dim3 grid(static_cast<unsigned>(args.num_heads), static_cast<unsigned>(args.split_query_len),
                  static_cast<unsigned>(num_sequences));
  return launch("paged_attention (merge)", attention_merge, grid, dim3(kMergeThreads), 0, stream, args);
}

}  // namespace pagoda::kernels::cuda
