#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The keys of a tokenizer_config.json that the engine uses. The file has many more keys, for other programs; they are
/// ignored.
struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;
  /// Tokens with a role under their keys ("bos_token", ..., then a model's own such as "image_token"), followed by the
  /// tokens of extra_special_tokens or additional_special_tokens, whose key is empty if they have no name. All are
  /// special; their ids are not known here (-1).
  std::vector<std::pair<std::string, text::AddedToken>> special_tokens;
  bool has_added_tokens_decoder = false;
  std::vector<text::AddedToken> added_tokens;         ///< added_tokens_decoder or added_tokens.json, by id
  std::string tokenizer_class;                        ///< empty where the file names none
  std::map<std::string, std::string> chat_templates;  ///< Jinja sources by name; a single one is "default"

  /// Returns the special token under a key; null when there is none.
  const text::AddedToken* special_token(std::string_view key) const;
};

/// Errors: bad_config, one line that starts with `file_name` and names the key, which is also `param`.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, std::string_view file_name);

/// Loads `model_dir`/tokenizer_config.json and the files beside it with the precedence of transformers 5. If the config
/// has an added_tokens_decoder, nothing else is read. Otherwise special_tokens_map.json overrides the special tokens of
/// the config, and added_tokens.json lists the added tokens. A directory without these files gives an empty config.
Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
