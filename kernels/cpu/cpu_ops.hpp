#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// The ops of the CPU device. Each op checks its params and computes before it returns, on the calling thread and the
/// pool; it does not use the stream argument. Thread-safe; regions of concurrent calls run on the pool one after the
/// other.
class CpuOps final : public Ops {
 public:
  CpuOps(const CpuKernels& kernels, ThreadPool& threads) : kernels_(kernels), threads_(threads) {}

  Status embedding(Stream& stream, const EmbeddingParams& params) const override;
  Status rms_norm(Stream& stream, const RmsNormParams& params) const override;
  Status layer_norm(Stream& stream, const LayerNormParams& params) const override;
  Status linear(Stream& stream, const LinearParams& params) const override;
  Status quantized_linear(Stream& stream, const QuantizedLinearParams& params) const override;
  Status lora(Stream& stream, const LoraParams& params) const override;
  Status quantize_weights(Stream& stream, const QuantizeWeightsParams& params) const override;
  Status host_work(Stream& stream, const HostWorkParams& params) const override;
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

 private:
  const CpuKernels& kernels_;
  ThreadPool& threads_;
  mutable ScratchPool scratch_;
};

}  // namespace pagoda::kernels
