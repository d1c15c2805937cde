#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "engine/text/detokenizer.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "kernels/result.hpp"

namespace pagoda::io::testing {

inline constexpr std::array<std::string_view, 3> kFuzzTexts{"", "Hello  world\n",
                                                            "a<s>b \u00e9\u4e16\U0001f999 12 it's    <x>hello<0x41>"};

/// Whatever the vocabulary of a tokenizer is, it encodes a text or says why not, and what it decodes is text.
inline void try_tokenizer(const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  for (const std::string_view sample : kFuzzTexts) {
    const Result<TokenIds> ids = tokenizer->encode(sample, true);
    if (!ids) {
      PAGODA_ASSERT(!ids.error().message.empty(), "an error says what is wrong");
      continue;
    }
    const std::string text = tokenizer->decode(*ids, true);
    PAGODA_ASSERT(text::find_invalid_utf8(text) == std::string_view::npos, "decoded text is UTF-8");
    text::IncrementalDetokenizer detokenizer(tokenizer, true, {});
    std::string streamed;
    for (const TokenId id : *ids) streamed += detokenizer.push(id);
    PAGODA_ASSERT(streamed + detokenizer.flush() == text, "streamed text is the decoded text");
  }
}

}  // namespace pagoda::io::testing
