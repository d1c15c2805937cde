#pragma once

/// Checks of the params of an op, which do not depend on the device: pointers that are read or written are not null,
/// shapes fit each other, indices are in range. Violations are internal errors that name the op, the field and the
/// value.
///
/// check_shapes() does not read the memory that the params point to, so it works for device memory too. check() also
/// checks the values of the index arrays, which must be in host memory. Ops without index arrays have only check().

#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

Status check_shapes(const EmbeddingParams& p);
Status check_shapes(const LoraParams& p);
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
Status check(const LoraParams& p);
Status check(const QuantizeWeightsParams& p);
Status check(const ConvertParams& p);
Status check(const RotaryParams& p);
Status check(const StoreKvParams& p);
Status check(const PagedAttentionParams& p);
Status check(const ActivationParams& p);
Status check(const ScaleParams& p);
Status check(const GatherRowsParams& p);
Status check(const GatherTokensParams& p);
Status check(const ScatterTokensParams& p);
Status check(const CopyParams& p);
Status check(const MoveBlocksParams& p);
Status check(const SampleParams& p);  ///< kernels/sample.hpp

}  // namespace pagoda::kernels
