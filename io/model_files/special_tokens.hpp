#pragma once

#include <string>
#include <vector>

#include "engine/text/token_model.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/tokenizer_config.hpp"

namespace pagoda::io {

/// What a kind of tokenizer takes where tokenizer_config.json is silent.
struct SpecialTokenDefaults {
  std::vector<text::AddedToken> tokens;  ///< special tokens that the vocabulary itself names
  std::string bos_token;                 ///< empty: none
  std::string eos_token;
  bool add_bos_token = false;
};

/// Fills `spec.added_tokens` and `spec.post_processors` for a vocabulary file that has no tokenizer.json beside it, as
/// transformers does: tokens of the config that `model` lacks are numbered behind it, and the beginning and end of
/// sequence stand around a text where add_bos_token and add_eos_token say so (and there is such a token).
void add_special_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                        const text::TokenModel& model, text::TokenizerSpec& spec);

/// Adds the tokens that only the files beside a tokenizer.json name to `spec`, which was read from that tokenizer.json.
/// Follows transformers 5: an added token of the config replaces the flags of an equal one, tokens that are not in the
/// vocabulary are numbered behind it in order, and a special token that is known already stays as it is.
/// Returns the added tokens whose id in the config differs from the id that they get.
std::vector<text::AddedToken> add_tokens_beside_json(const TokenizerConfig& config, text::TokenizerSpec& spec);

}  // namespace pagoda::io
