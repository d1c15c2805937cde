#pragma once

#include <span>

#include "engine/request/sampling_params.hpp"
#include "engine/step/execute.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// What a device must know of validated parameters; whether rows append their samples is the strategy's to say, and the
/// tokens of bad_words are RequestSpec's. Until
/// the output has min_tokens tokens, eos and stop_token_ids are banned; as in vLLM with ignore_eos too.
RowSampling row_sampling(const SamplingParams& params, std::span<const TokenId> eos_token_ids);

}  // namespace pagoda
