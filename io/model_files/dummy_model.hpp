#pragma once

#include <filesystem>
#include <memory>

#include "engine/models/model_spec.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::io {

/// Opens the model of a folder's config.json with random weights, so that its speed and its memory can be measured
/// without the real weights. Matrices are drawn like those of a fresh model (normal distribution, standard deviation
/// 0.02), in the type that config.json names; norms are 1 and biases 0. A tensor's values depend on its name and shape
/// only. `quantization_config` is ignored. Tokenizer, sampling defaults and chat template are those of the folder;
/// without a tokenizer there, byte_tokenizer is used.
///
/// `path`: the folder, or the config.json in it. Errors: bad_config (there is no config.json).
Result<std::shared_ptr<const ModelFiles>> open_dummy_model(const std::filesystem::path& path);

/// Makes the weights alone, with matrices in `dtype`. Every tensor that is asked for exists, in memory of its own.
/// Thread-safe.
std::shared_ptr<const ModelWeights> dummy_weights(DType dtype);

/// Makes a tokenizer of bytes: token i < 256 is the byte i, and each other token is a word of letters. Errors:
/// unsupported (a vocabulary of fewer than 256 tokens).
Result<std::shared_ptr<const text::Tokenizer>> byte_tokenizer(std::int64_t vocab_size);

}  // namespace pagoda::io
