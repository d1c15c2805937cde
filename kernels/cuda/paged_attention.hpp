#pragma once

/// PagedAttentionParams on a GPU. All arrays are device memory; max_query_len and max_context_len bound what they hold.
///
/// Keys and values of float16, bfloat16, fp8_e4m3 and int8 with rows of whole 16 bytes and a head_dim up to 256 go
/// through tensor cores: queries and probabilities are rounded to the keys' type (float16 for the types of one byte),
/// all sums are float32. Any other type or shape takes a plain kernel that computes in float32.
///
/// A sequence with few query rows (a decode) has the same bits in any batch and with any block size. The rows of longer
/// chunks may differ in the last bits from batch to batch, and from the same rows as a decode.

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Device memory for a call, used until its kernels have run.
struct AttentionMemory {
  std::span<std::byte> scratch;      ///< attention_scratch_bytes(p), aligned to 16 bytes, of any contents
  std::int32_t* counters = nullptr;  ///< [kAttentionCounters], zero between calls; of one stream alone
};

/// 0 to kAttentionScratchBytes (kernels/cuda/attention_plan.hpp).
std::size_t attention_scratch_bytes(const PagedAttentionParams& p);

/// Enqueues up to two kernels, the first once per slice of the batch (one slice unless it needs more scratch than there
/// may be); which ones depends on the params' host values only, so the call may be captured in a graph. `p` has passed
/// check_shapes. Errors: unsupported (a head_dim too large for shared memory), internal (a launch failed).
Status cuda_paged_attention(cudaStream_t stream, const PagedAttentionParams& p, const AttentionMemory& memory);

}  // namespace pagoda::kernels::cuda
