#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io::tokenizer_file {

/// A tokenizer.json, read in one pass: the hundreds of thousands of tokens and merges go directly into `bpe`, and only
/// the few other values become a JSON tree, without model.vocab and model.merges.
struct TokenizerDocument {
  nlohmann::json rest;
  text::BpeSpec bpe;
  bool has_vocab = false;
  bool has_merges = false;
};

/// Errors: bad_config without the file's name; `param` is the key.
Result<TokenizerDocument> read_tokenizer_document(std::string_view json);

}  // namespace pagoda::io::tokenizer_file
