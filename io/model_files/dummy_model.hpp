#pragma once

#include <filesystem>
#include <memory>

#include "engine/models/model_spec.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::io {

/// The model of a folder's config.json with random weights, so that its speed and its memory can be measured where its
/// weights are not: matrices are drawn like those of a fresh model (normal, standard deviation 0.02), in the type that
/// config.json names; norms are 1 and biases 0. The same tensor of the same name is the same always. A
/// `quantization_config` is not looked at. Tokenizer, sampling defaults and chat template are those of the folder;
/// without a tokenizer there, text is bytes: token i < 256 is a byte, and every other one a word of letters.
///
/// `path`: the folder, or the config.json in it. Errors (bad_config): there is none.
Result<std::shared_ptr<const ModelFiles>> open_dummy_model(const std::filesystem::path& path);

/// The weights alone, of a model that has its matrices in `dtype`. Any tensor that is asked for is there, in memory of
/// its own. Thread-safe.
std::shared_ptr<const ModelWeights> dummy_weights(DType dtype);

/// Errors: unsupported (a vocabulary of fewer than 256 tokens).
Result<std::shared_ptr<const text::Tokenizer>> byte_tokenizer(std::int64_t vocab_size);

}  // namespace pagoda::io
