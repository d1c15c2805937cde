#pragma once

#include <filesystem>
#include <string_view>

#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads the text of a tokenizer.json (the Hugging Face `tokenizers` format, version 1.0). Every part that this engine
/// does not support is an error; none is ignored.
///
/// Errors are one line that starts with `file_name` and names the key: bad_config for a malformed file, unsupported for
/// a part that this engine does not support. `param` is the key.
Result<text::TokenizerSpec> parse_tokenizer_json(std::string_view json, std::string_view file_name);

/// Reads a tokenizer.json from a file. Errors: also bad_config when the file cannot be read.
Result<text::TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path);

}  // namespace pagoda::io
