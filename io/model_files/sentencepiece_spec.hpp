#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "engine/text/sentencepiece_model.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// What all tokenizers over a SentencePiece model share, from whatever file it comes: the model and its decoders.
text::TokenizerSpec sentencepiece_spec(std::shared_ptr<const text::SentencePieceModel> model);

/// The bytes of a tokenizer.model that the library can be given (check_sentencepiece_proto). Errors: bad_config, one
/// line that starts with the file's name.
Result<std::string> read_sentencepiece_model(const std::filesystem::path& file);

/// The tokenizer of a folder whose tokenizer.model has these bytes and that has this config. Errors: bad_config,
/// without a file.
Result<text::TokenizerSpec> make_sentencepiece_tokenizer(std::string_view bytes, const TokenizerConfig& config);

/// Where the tokenizer of a folder with this config puts the space that its model has before a text.
text::SentencePieceModel::SpaceBefore sentencepiece_space_before(const TokenizerConfig& config);

}  // namespace pagoda::io
