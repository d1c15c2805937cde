#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::io {

/// What an engine needs from a tokenizer_config.json. The file has many more keys, for other programs; they are left
/// alone.
struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<std::string> bos_token;  ///< the token's string
  std::optional<std::string> eos_token;
  std::optional<std::string> unk_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> chat_template;  ///< Jinja source; the one named "default" where there are several
};

/// Errors: bad_config, one line that starts with `file_name` and names the key, which is also `param`.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, std::string_view file_name);

/// Loads `model_dir`/tokenizer_config.json; a directory without one gives an empty config.
Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
