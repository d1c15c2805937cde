#pragma once

/// Implements every op as plain scalar code that defines the meaning of the op, without regard to speed. Tests compare
/// each device's implementation with it. Sums are in double precision, so that the reference is the most exact
/// implementation. Params must have passed `check` (kernels/ops_check.hpp).

#include "kernels/ops.hpp"

namespace pagoda::kernels::reference {

void embedding(const EmbeddingParams& p);
void rms_norm(const RmsNormParams& p);
void layer_norm(const LayerNormParams& p);
void linear(const LinearParams& p);
void quantized_linear(const QuantizedLinearParams& p);
void lora(const LoraParams& p);
void convert(const ConvertParams& p);
void rotary(const RotaryParams& p);
void store_kv(const StoreKvParams& p);
void paged_attention(const PagedAttentionParams& p);
void activation(const ActivationParams& p);
void scale(const ScaleParams& p);
void gather_rows(const GatherRowsParams& p);
void gather_tokens(const GatherTokensParams& p);
void scatter_tokens(const ScatterTokensParams& p);
void move_blocks(const MoveBlocksParams& p);

}  // namespace pagoda::kernels::reference
