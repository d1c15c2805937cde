#pragma once

#include <string>
#include <vector>

#include "engine/text/token_model.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/tokenizer_config.hpp"

namespace pagoda::io {

/// Special tokens of a kind of tokenizer, for values that tokenizer_config.json does not have.
struct SpecialTokenDefaults {
  std::vector<text::AddedToken> tokens;  ///< special tokens that the vocabulary itself has
  std::string bos_token;                 ///< empty: none
  std::string eos_token;
  bool add_bos_token = false;
};

/// Fills `spec.added_tokens` and `spec.post_processors` for a vocabulary file without a tokenizer.json, as transformers
/// does. Tokens of the config that `model` lacks get the ids after the vocabulary. If add_bos_token or add_eos_token is
/// true and there is such a token, it is put before or after a text.
void add_special_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                        const text::TokenModel& model, text::TokenizerSpec& spec);

/// Adds to `spec`, which was read from a tokenizer.json, the tokens that only the files beside this file name. Follows
/// transformers 5: an added token of the config replaces the flags of an equal one, tokens that are not in the
/// vocabulary get the ids after it, in order, and a special token that is known already stays as it is. Returns the
/// added tokens whose id in the config differs from the id that they get.
std::vector<text::AddedToken> add_tokens_beside_json(const TokenizerConfig& config, text::TokenizerSpec& spec);

}  // namespace pagoda::io
