#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::io {

/// The steps of byte-level BPE before its merges, for a name in tokenizer.ggml.pre.
struct GgufPreTokenizer {
  std::vector<text::NormalizerSpec> normalizers;
  std::vector<text::PreTokenizerSpec> pre_tokenizers;
  bool ignore_merges = false;
  /// Whether a text begins with the beginning-of-sequence token where the file has no add_bos_token.
  bool add_bos_token = false;
};

/// Returns null for an unknown name. The regular expressions are those of the models' tokenizer.json; names,
/// ignore_merges and add_bos_token are those of llama.cpp's src/llama-vocab.cpp.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// Returns the first name that has these parts, with any add_bos_token; empty when there is none.
std::string_view gguf_pre_tokenizer_name(const std::vector<text::NormalizerSpec>& normalizers,
                                         const std::vector<text::PreTokenizerSpec>& pre_tokenizers, bool ignore_merges);
/// Returns all names in order ("a.x-4.0", "bailingmoe", ...), for messages and tests.
std::vector<std::string_view> gguf_pre_tokenizer_names();

}  // namespace pagoda::io
