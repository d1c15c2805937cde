#pragma once

#include "kernels/ops.hpp"
#include "tests/support/split_memory.hpp"

namespace pagoda::test {

/// The CPU's ops over SplitMemory: each op checks the memory that its pointers point to, copies the data that the
/// caller may free, and queues the op with the addresses of the bytes.
class SplitOps final : public kernels::Ops {
 public:
  SplitOps(const kernels::Ops& cpu, const SplitMemory& memory) : cpu_(cpu), memory_(memory) {}

  using Stream = kernels::Stream;
  Status embedding(Stream& stream, const kernels::EmbeddingParams& params) const override;
  Status rms_norm(Stream& stream, const kernels::RmsNormParams& params) const override;
  Status layer_norm(Stream& stream, const kernels::LayerNormParams& params) const override;
  Status linear(Stream& stream, const kernels::LinearParams& params) const override;
  Status quantized_linear(Stream& stream, const kernels::QuantizedLinearParams& params) const override;
  Status lora(Stream& stream, const kernels::LoraParams& params) const override;
  Status quantize_weights(Stream& stream, const kernels::QuantizeWeightsParams& params) const override;
  Status convert(Stream& stream, const kernels::ConvertParams& params) const override;
  Status rotary(Stream& stream, const kernels::RotaryParams& params) const override;
  Status store_kv(Stream& stream, const kernels::StoreKvParams& params) const override;
  Status paged_attention(Stream& stream, const kernels::PagedAttentionParams& params) const override;
  Status activation(Stream& stream, const kernels::ActivationParams& params) const override;
  Status scale(Stream& stream, const kernels::ScaleParams& params) const override;
  Status gather_rows(Stream& stream, const kernels::GatherRowsParams& params) const override;
  Status gather_tokens(Stream& stream, const kernels::GatherTokensParams& params) const override;
  Status scatter_tokens(Stream& stream, const kernels::ScatterTokensParams& params) const override;
  Status copy(Stream& stream, const kernels::CopyParams& params) const override;
  Status move_blocks(Stream& stream, const kernels::MoveBlocksParams& params) const override;
  Status sample(Stream& stream, const kernels::SampleParams& params) const override;

 private:
  class Translation;

  const kernels::Ops& cpu_;
  const SplitMemory& memory_;
};

}  // namespace pagoda::test
