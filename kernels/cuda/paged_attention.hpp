#pragma once

/// Computes PagedAttentionParams on a GPU. All arrays are device memory; max_query_len and max_context_len are upper
/// bounds of their contents.
///
/// Keys and values of float16, bfloat16, fp8_e4m3 and int8 with rows of whole 16 bytes and a head_dim up to 256 are
/// multiplied on tensor cores: queries and probabilities are rounded to the keys' type (float16 for the types of one
/// byte), all sums are float32. For any other type or shape, a plain kernel computes in float32.
///
/// A sequence with few query rows (a decode) has the same bits in any batch and with any block size. The last bits of
/// the rows of longer chunks may differ from batch to batch, and from the same rows computed as a decode.

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Device memory for a call, used until its kernels have run.
struct AttentionMemory {
  std::span<std::byte> scratch;      ///< attention_scratch_bytes(p) bytes, aligned to 16 bytes, with any contents
  std::int32_t* counters = nullptr;  ///< [kAttentionCounters], zero between calls; used by one stream only
};

/// Returns the scratch that a call needs: 0 to kAttentionScratchBytes (kernels/cuda/attention_plan.hpp).
std::size_t attention_scratch_bytes(const PagedAttentionParams& p);

/// Enqueues up to two kernels, the first once per slice of the batch (one slice, unless it would need more scratch than
/// allowed). The choice of kernels depends only on the params' host values, so the call may be captured in a graph. `p`
/// has passed check_shapes. Errors: unsupported (a head_dim too large for shared memory), internal (a launch failed).
Status cuda_paged_attention(cudaStream_t stream, const PagedAttentionParams& p, const AttentionMemory& memory);

}  // namespace pagoda::kernels::cuda
