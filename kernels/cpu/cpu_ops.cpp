#include "kernels/cpu/cpu_ops.hpp"

#include "kernels/cpu/sample.hpp"
#include "kernels/ops_check.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels {

Status CpuOps::embedding(Stream&, const EmbeddingParams& params) const {
  return check(params).map([&] { reference::embedding(params); });
}

Status CpuOps::rms_norm(Stream&, const RmsNormParams& params) const {
  return check(params).map([&] { reference::rms_norm(params); });
}

Status CpuOps::linear(Stream&, const LinearParams& params) const {
  return check(params).map([&] { reference::linear(params); });
}

Status CpuOps::rotary(Stream&, const RotaryParams& params) const {
  return check(params).map([&] { reference::rotary(params); });
}

Status CpuOps::store_kv(Stream&, const StoreKvParams& params) const {
  return check(params).map([&] { reference::store_kv(params); });
}

Status CpuOps::paged_attention(Stream&, const PagedAttentionParams& params) const {
  return check(params).map([&] { reference::paged_attention(params); });
}

Status CpuOps::activation(Stream&, const ActivationParams& params) const {
  return check(params).map([&] { reference::activation(params); });
}

Status CpuOps::gather_rows(Stream&, const GatherRowsParams& params) const {
  return check(params).map([&] { reference::gather_rows(params); });
}

Status CpuOps::move_blocks(Stream&, const MoveBlocksParams& params) const {
  return check(params).map([&] { reference::move_blocks(params); });
}

Status CpuOps::sample(Stream&, const SampleParams& params) const {
  return cpu_sample(threads_, params);
}

}  // namespace pagoda::kernels
