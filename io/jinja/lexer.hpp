#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::jinja {

enum class TokenKind : std::uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text = {};  ///< text of data, names, operators, and strings (without quotes and escapes)
  std::int64_t integer = 0;
  double real = 0;

  bool is(TokenKind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
};

/// Returns the tokens of a template, with trim_blocks and lstrip_blocks on; the last one is of kind `end`. Throws
/// Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace pagoda::jinja
