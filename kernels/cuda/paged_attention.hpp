#pragma once

/// PagedAttentionParams on a GPU. All arrays are device memory; max_query_len and max_context_len bound what they hold.
///
/// Keys and values of float16, bfloat16 and fp8_e4m3 with rows of whole 16 bytes and a head_dim up to 256 go through
/// tensor cores: queries and probabilities are rounded to the keys' type (float16 for fp8_e4m3), all sums are float32.
/// Any other type or shape takes a plain kernel that computes in float32.
///
/// A row's bits depend on nothing but its query, its position and the keys and values that it sees: not on the batch,
/// the chunks of its prompt, the block size, or on whether it is computed in a prefill or a decode. They do depend on
/// head_dim, the type of the cache and the GPU's own rounding.

#include <cstddef>
#include <span>

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Scratch for one call: 0 to kAttentionScratchBytes (kernels/cuda/attention_plan.hpp).
std::size_t attention_scratch_bytes(const PagedAttentionParams& p);

/// Enqueues up to three kernels per slice of the batch (one slice unless it needs more scratch than there may be);
/// which ones depends on the params' host values only, so the call may be captured in a graph. `p` has passed
/// check_shapes; `scratch` is device memory of attention_scratch_bytes(p), aligned to 16 bytes, used until the kernels
/// have run. Errors: unsupported (a head_dim too large for shared memory), internal (a launch failed).
Status cuda_paged_attention(cudaStream_t stream, const PagedAttentionParams& p, std::span<std::byte> scratch);

}  // namespace pagoda::kernels::cuda
