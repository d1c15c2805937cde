#pragma once

/// Ops over rows of activations that multiply no matrices. Params have passed check_shapes (kernels/ops_check.hpp); all
/// arrays are device memory. Each op enqueues one kernel and returns its launch error. The bits of a row depend only on
/// the row and the op's dimensions.

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Writes a row of NaN for a token id outside of the table.
Status cuda_embedding(cudaStream_t stream, const EmbeddingParams& p);
Status cuda_rms_norm(cudaStream_t stream, const RmsNormParams& p);
Status cuda_layer_norm(cudaStream_t stream, const LayerNormParams& p);
Status cuda_rotary(cudaStream_t stream, const RotaryParams& p);
Status cuda_activation(cudaStream_t stream, const ActivationParams& p);
Status cuda_scale(cudaStream_t stream, const ScaleParams& p);
Status cuda_gather_rows(cudaStream_t stream, const GatherRowsParams& p);
Status cuda_gather_tokens(cudaStream_t stream, const GatherTokensParams& p);
Status cuda_scatter_tokens(cudaStream_t stream, const ScatterTokensParams& p);
Status cuda_convert(cudaStream_t stream, const ConvertParams& p);
Status cuda_store_kv(cudaStream_t stream, const StoreKvParams& p);
/// Stores into a cache of fp8_e4m3 or int8.
Status cuda_store_kv_bytes(cudaStream_t stream, const StoreKvParams& p);
/// Between host and device the host side must be pinned.
Status cuda_copy(cudaStream_t stream, const CopyParams& p);

}  // namespace pagoda::kernels::cuda
