#include "kernels/cuda/cuda_ops.hpp"

#include <string>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/lora.hpp"
#include "kernels/cuda/move_blocks.hpp"
#include "kernels/cuda/paged_attention.hpp"
#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/cuda/row_ops.hpp"
#include "kernels/cuda/sample.hpp"
#include "kernels/ops_check.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Runs op(CUDA stream), unless the check failed or the stream has an error.
template <class Op>
Status enqueue(Stream& stream, const Status& checked, const Op& op) {
  if (!checked) return checked;
  CudaStream& cuda = cuda_stream(stream);
  if (Status active = cuda.activate(); !active) return active;
  return op(cuda);
}

/// Refuses what only a CPU multiplies: integers of 2 or 3 bits, which are loaded as 4 bits for a GPU, and affine
/// formats (WeightPolicy::on_gpu).
Status check_on_gpu(const char* op, const QuantizedMatrix& weights) {
  if (weights.format.affine) {
    return fail(ErrorCode::unsupported, std::string(op) + ": an affine format is not multiplied on a GPU");
  }
  if (weights.format.bits >= 4) return {};
  return fail(ErrorCode::unsupported, std::string(op) + ": integers of 2 or 3 bits are not multiplied on a GPU");
}

}  // namespace

Status CudaOps::embedding(Stream& stream, const EmbeddingParams& p) const {
  if (Status bits = check_on_gpu("embedding", p.quantized); !bits) return bits;
  if (p.whole_vocab != 0) return fail(ErrorCode::unsupported, "embedding: a GPU takes whole tables only");
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_embedding(s.get(), p); });
}

Status CudaOps::rms_norm(Stream& stream, const RmsNormParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_rms_norm(s.get(), p); });
}

Status CudaOps::layer_norm(Stream& stream, const LayerNormParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_layer_norm(s.get(), p); });
}

Status CudaOps::linear(Stream& stream, const LinearParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_linear(s, p); });
}

Status CudaOps::quantized_linear(Stream& stream, const QuantizedLinearParams& p) const {
  for (const QuantizedMatrix& weights : p.weights) {
    if (Status bits = check_on_gpu("quantized_linear", weights); !bits) return bits;
  }
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_quantized_linear(s, p); });
}

Status CudaOps::lora(Stream& stream, const LoraParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_lora(s, p); });
}

Status CudaOps::quantize_weights(Stream&, const QuantizeWeightsParams&) const {
  return fail(ErrorCode::unsupported, "quantize_weights runs on the CPU device; its result is copied to the GPU");
}

Status CudaOps::convert(Stream& stream, const ConvertParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_convert(s.get(), p); });
}

Status CudaOps::rotary(Stream& stream, const RotaryParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_rotary(s.get(), p); });
}

Status CudaOps::store_kv(Stream& stream, const StoreKvParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_store_kv(s.get(), p); });
}

Status CudaOps::paged_attention(Stream& stream, const PagedAttentionParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) -> Status {
    const std::size_t bytes = attention_scratch_bytes(p);
    const Result<std::byte*> scratch = s.scratch(bytes);
    if (!scratch) return fail(scratch.error());
    static_assert(CudaStream::kCounters >= kAttentionCounters);
    const Result<std::int32_t*> counters = s.counters();
    if (!counters) return fail(counters.error());
    return cuda_paged_attention(s.get(), p, {{*scratch, bytes}, *counters});
  });
}

Status CudaOps::activation(Stream& stream, const ActivationParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_activation(s.get(), p); });
}

Status CudaOps::scale(Stream& stream, const ScaleParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_scale(s.get(), p); });
}

Status CudaOps::gather_rows(Stream& stream, const GatherRowsParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_gather_rows(s.get(), p); });
}

Status CudaOps::gather_tokens(Stream& stream, const GatherTokensParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_gather_tokens(s.get(), p); });
}

Status CudaOps::scatter_tokens(Stream& stream, const ScatterTokensParams& p) const {
  return enqueue(stream, check_shapes(p), [&](CudaStream& s) { return cuda_scatter_tokens(s.get(), p); });
}

Status CudaOps::copy(Stream& stream, const CopyParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_copy(s.get(), p); });
}

Status CudaOps::move_blocks(Stream& stream, const MoveBlocksParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_move_blocks(s, p); });
}

Status CudaOps::sample(Stream& stream, const SampleParams& p) const {
  return enqueue(stream, kernels::check(p), [&](CudaStream& s) { return cuda_sample(s, p); });
}

}  // namespace pagoda::kernels::cuda
