#pragma once

#include <string>
#include <string_view>

#include "io/model_files/tokenizer_json.hpp"
#include "kernels/result.hpp"
#include "tests/io/fuzz/tokenizer_target.hpp"

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
  try_tokenizer(*tokenizer);
}

}  // namespace pagoda::io::testing
