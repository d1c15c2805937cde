#pragma once

/// What must hold for the params of an op, on every device: no null pointer that is read or written, shapes that fit
/// each other, indices in range. Violations are internal errors that name the op, the field and the value. Host memory
/// only: a device whose index arrays are not readable by the host checks the rest by itself.

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

Status check(const EmbeddingParams& p);
Status check(const RmsNormParams& p);
Status check(const LayerNormParams& p);
Status check(const LinearParams& p);
Status check(const QuantizedLinearParams& p);
Status check(const QuantizeWeightsParams& p);
Status check(const ConvertParams& p);
Status check(const RotaryParams& p);
Status check(const StoreKvParams& p);
Status check(const PagedAttentionParams& p);
Status check(const ActivationParams& p);
Status check(const GatherRowsParams& p);
Status check(const GatherTokensParams& p);
Status check(const ScatterTokensParams& p);
Status check(const CopyParams& p);
Status check(const MoveBlocksParams& p);
Status check(const SampleParams& p);  ///< kernels/sample.hpp

}  // namespace pagoda::kernels
