#pragma once

/// What must hold for the params of an op, on every device: no null pointer that is read or written, shapes that fit
/// each other, indices in range. Violations are internal errors that name the op, the field and the value.
///
/// check_shapes() reads nothing that the params' pointers point to, so it is right for device memory too. check() is
/// that and the values of the index arrays, which must be host memory. Ops without index arrays have check() alone.

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

Status check_shapes(const EmbeddingParams& p);
Status check_shapes(const RotaryParams& p);
Status check_shapes(const StoreKvParams& p);
Status check_shapes(const PagedAttentionParams& p);
Status check_shapes(const GatherRowsParams& p);
Status check_shapes(const GatherTokensParams& p);
Status check_shapes(const ScatterTokensParams& p);

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
