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

/// Returns the parts that all tokenizers with a SentencePiece model share: the model and its decoders.
text::TokenizerSpec sentencepiece_spec(std::shared_ptr<const text::SentencePieceModel> model);

/// Returns the bytes of a tokenizer.model after check_sentencepiece_proto. Errors: bad_config, one line that starts
/// with the file's name.
Result<std::string> read_sentencepiece_model(const std::filesystem::path& file);

/// Makes the tokenizer of a folder from the bytes of its tokenizer.model and its config. Errors: bad_config, without a
/// file.
Result<text::TokenizerSpec> make_sentencepiece_tokenizer(std::string_view bytes, const TokenizerConfig& config);

/// Returns where the tokenizer of a folder with this config puts the space that its model has before a text.
text::SentencePieceModel::SpaceBefore sentencepiece_space_before(const TokenizerConfig& config);

}  // namespace pagoda::io
