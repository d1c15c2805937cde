#pragma once

#include <span>

#include "engine/request/sampling_params.hpp"
#include "engine/step/execute.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Returns the sampling parameters that a device needs. The caller sets appends_samples, by the strategy of the
/// request, and bad_words, by RequestSpec. Before the output has min_tokens tokens, the model's end tokens and
/// stop_token_ids are banned; as in vLLM also with ignore_eos.
RowSampling row_sampling(const SamplingParams& params, std::span<const TokenId> eos_token_ids);

}  // namespace pagoda
