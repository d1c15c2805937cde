#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/text/detokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "kernels/result.hpp"

namespace pagoda::io::testing {

/// Reads `bytes` as a tokenizer.json. Whatever they are, there is a one-line error or a tokenizer that works.
inline void try_tokenizer_json(std::string_view bytes) {
  const auto check_error = [](const Error& error) {
    PAGODA_ASSERT(!error.message.empty(), "an error says what is wrong");
  };
  const Result<text::TokenizerSpec> spec = parse_tokenizer_json(bytes, "tokenizer.json");
  if (!spec) {
    check_error(spec.error());
    PAGODA_ASSERT(spec.error().message.find('\n') == std::string::npos, "an error is one line");
    return;
  }
  const auto tokenizer = text::Tokenizer::create(*spec);
  if (!tokenizer) return check_error(tokenizer.error());
  for (const std::string_view sample : {"", "Hello  world\n", "a<s>b \u00e9\u4e16\U0001f999 12 it's"}) {
    const Result<TokenIds> ids = (*tokenizer)->encode(sample, true);
    if (!ids) {
      check_error(ids.error());
      continue;
    }
    const std::string text = (*tokenizer)->decode(*ids, true);
    PAGODA_ASSERT(text::find_invalid_utf8(text) == std::string_view::npos, "decoded text is UTF-8");
    text::IncrementalDetokenizer detokenizer(*tokenizer, true, {});
    std::string streamed;
    for (const TokenId id : *ids) streamed += detokenizer.push(id);
    PAGODA_ASSERT(streamed + detokenizer.flush() == text, "streamed text is the decoded text");
  }
}

}  // namespace pagoda::io::testing
