#pragma once

#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// The ops of a CUDA device. Each op checks shapes and pointers, enqueues its work and returns without waiting. The
/// contents of index arrays are not checked, because the arrays lie on the device. All arrays are device memory, except
/// the spans of the params, which are read before the call returns. Once a stream has failed, its ops return that
/// error. Thread-safe for different streams.
class CudaOps final : public Ops {
 public:
  bool supports_narrow_rows() const override { return true; }
  Status embedding(Stream& stream, const EmbeddingParams& params) const override;
  Status rms_norm(Stream& stream, const RmsNormParams& params) const override;
  Status layer_norm(Stream& stream, const LayerNormParams& params) const override;
  Status linear(Stream& stream, const LinearParams& params) const override;
  Status quantized_linear(Stream& stream, const QuantizedLinearParams& params) const override;
  Status lora(Stream& stream, const LoraParams& params) const override;
  Status quantize_weights(Stream& stream, const QuantizeWeightsParams& params) const override;
  Status convert(Stream& stream, const ConvertParams& params) const override;
  Status rotary(Stream& stream, const RotaryParams& params) const override;
  Status store_kv(Stream& stream, const StoreKvParams& params) const override;
  Status paged_attention(Stream& stream, const PagedAttentionParams& params) const override;
  Status activation(Stream& stream, const ActivationParams& params) const override;
  Status scale(Stream& stream, const ScaleParams& params) const override;
  Status gather_rows(Stream& stream, const GatherRowsParams& params) const override;
  Status gather_tokens(Stream& stream, const GatherTokensParams& params) const override;
  Status scatter_tokens(Stream& stream, const ScatterTokensParams& params) const override;
  Status copy(Stream& stream, const CopyParams& params) const override;
  Status move_blocks(Stream& stream, const MoveBlocksParams& params) const override;
  Status sample(Stream& stream, const SampleParams& params) const override;
};

}  // namespace pagoda::kernels::cuda
