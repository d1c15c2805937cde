#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// Returns texts of `context` tokens that the model itself writes at temperature 1, always the same texts. Each begins
/// with the model's bos token or, if the model has none, with a drawn token. Errors: those of Engine::create and of
/// generate.
Result<std::vector<TokenIds>> write_texts(const EngineConfig& config, const models::ModelSpec& spec,
                                          std::int64_t num_texts, std::int64_t context, const StartProgress& progress);

/// Returns the first tokens of `text`, in up to `num_texts` pieces of `context`. Errors: bad_config (param calibration:
/// not one whole piece), those of Tokenizer::encode.
Result<std::vector<TokenIds>> cut_text(const text::Tokenizer& tokenizer, const std::string& text,
                                       std::int64_t num_texts, std::int64_t context);

}  // namespace pagoda
