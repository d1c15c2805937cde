#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/logprobs.hpp"

namespace pagoda::test {

/// Texts of tokens for tests without a tokenizer: token i has the i-th added text.
class ListedTexts final : public TokenTexts {
 public:
  /// `bytes`: bytes of the token, if they differ from the text.
  TokenId add(std::string text, std::optional<std::string> bytes = {}) {
    tokens_.emplace_back(std::move(text), std::move(bytes));
    return static_cast<TokenId>(tokens_.size()) - 1;
  }

  std::string token_piece_text(TokenId token) const override {
    return tokens_.at(static_cast<std::size_t>(token)).first;
  }
  std::optional<std::string> token_bytes(TokenId token) const override {
    return tokens_.at(static_cast<std::size_t>(token)).second;
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> tokens_;
};

/// Returns logprobs of one entry with a candidate for each element of `top`.
inline Logprobs one_logprob(std::shared_ptr<const TokenTexts> texts, TokenId token, float logprob, std::int32_t rank,
                            const std::vector<TokenLogprob>& top) {
  Logprobs logprobs(std::move(texts));
  logprobs.add(LogprobEntry{token, logprob, rank, 0, top});
  return logprobs;
}

}  // namespace pagoda::test
