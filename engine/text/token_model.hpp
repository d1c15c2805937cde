#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/text/regex.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// A vocabulary, and the rule that cuts text into tokens of the vocabulary. Immutable: many threads may use one object.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Appends the ids of `pieces` of `buffer` (valid UTF-8) to `ids`, piece by piece; no token crosses a piece.
  /// `at_text_start`: whether the first piece starts where the whole text started. Error: internal when the model
  /// cannot encode.
  virtual Status encode_pieces(std::string_view buffer, std::span<const Span> pieces, bool at_text_start,
                               TokenIds& ids) const = 0;

  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  /// Returns the token's string; empty for an id that no token has.
  virtual std::string_view token(TokenId id) const = 0;
  virtual bool has(TokenId id) const = 0;
  /// Returns one more than the highest id.
  virtual TokenId end_id() const = 0;
  /// Returns the number of tokens.
  virtual std::size_t size() const = 0;

 protected:
  TokenModel() = default;
  TokenModel(const TokenModel&) = default;
  TokenModel(TokenModel&&) = default;
  TokenModel& operator=(const TokenModel&) = default;
  TokenModel& operator=(TokenModel&&) = default;
};

}  // namespace pagoda::text
