#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::io {

/// What a name in tokenizer.ggml.pre stands for: how byte-level BPE treats a text before its merges.
struct GgufPreTokenizer {
  std::vector<text::NormalizerSpec> normalizers;
  std::vector<text::PreTokenizerSpec> pre_tokenizers;
  bool ignore_merges = false;
  bool add_bos_token = false;  ///< where the file does not say
};

/// Null for a name that is not known. The regular expressions are those of the models' tokenizer.json; names,
/// ignore_merges and add_bos_token are those of llama.cpp's src/llama-vocab.cpp.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// The first name that stands for these parts; empty when none does. What is added to a text does not count.
std::string_view gguf_pre_tokenizer_name(const std::vector<text::NormalizerSpec>& normalizers,
                                         const std::vector<text::PreTokenizerSpec>& pre_tokenizers, bool ignore_merges);
/// "bailingmoe, bloom, ...": for messages and tests.
std::vector<std::string_view> gguf_pre_tokenizer_names();

}  // namespace pagoda::io
