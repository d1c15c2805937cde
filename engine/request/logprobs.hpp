#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// The texts of single tokens, implemented by the tokenizer. Thread-safe.
class TokenTexts {
 public:
  virtual ~TokenTexts() = default;
  /// Returns the text that a reader sees for the token alone; bytes that are not whole characters become U+FFFD.
  virtual std::string token_piece_text(TokenId token) const = 0;
  /// Returns the bytes that the token stands for behind other tokens; nothing where they depend on the other tokens.
  virtual std::optional<std::string> token_bytes(TokenId token) const = 0;
};

/// A token and its log-probability.
struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.token_id, self.logprob); }
  bool operator==(const TokenLogprob&) const = default;
};

/// Log-probabilities at one position, of the model's distribution before temperature and truncation. Valid until its
/// Logprobs is changed.
struct LogprobEntry {
  TokenId token_id = 0;
  float logprob = 0;
  std::int32_t rank = 0;  ///< 1 = the most likely token
  /// Number of characters before the token in the text of its sequence or its prompt. A stop string that ends the text
  /// counts. Tokens that make one character together all have the position of that character.
  std::int64_t text_offset = 0;
  std::span<const TokenLogprob> top = {};  ///< the k best tokens, best first; or logprob_token_ids, in their order
};

/// The log-probabilities of consecutive tokens, as arrays of numbers. The texts of tokens are made only when a caller
/// asks for them.
class Logprobs {
 public:
  Logprobs() = default;
  /// `texts`: source of the tokens' texts. May be null if no caller asks for texts.
  explicit Logprobs(std::shared_ptr<const TokenTexts> texts) : texts_(std::move(texts)) {}

  std::size_t size() const { return positions_.size(); }
  bool empty() const { return positions_.empty(); }
  LogprobEntry operator[](std::size_t i) const {
    const Position& at = positions_[i];
    const std::uint64_t first = i == 0 ? 0 : positions_[i - 1].top_end;
    return {at.token_id, at.logprob, at.rank, at.text_offset,
            std::span(top_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(at.top_end - first))};
  }
  LogprobEntry front() const { return (*this)[0]; }
  LogprobEntry back() const { return (*this)[size() - 1]; }

  class Iterator {
   public:
    using value_type = LogprobEntry;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const Logprobs* of, std::size_t i) : of_(of), i_(i) {}
    LogprobEntry operator*() const { return (*of_)[i_]; }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    Iterator operator++(int) { return {of_, i_++}; }
    bool operator==(const Iterator&) const = default;

   private:
    const Logprobs* of_ = nullptr;
    std::size_t i_ = 0;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  /// Returns the number of log-probabilities; the tokens' own are included.
  std::size_t num_logprobs() const { return positions_.size() + top_.size(); }

  void add(const TokenReport& report, std::int64_t text_offset);
  void add(const LogprobEntry& entry);
  /// Adds the entries [first, last) of `others`. Takes over the source of texts if this object has none.
  void add(const Logprobs& others, std::size_t first, std::size_t last);
  void add(const Logprobs& others) { add(others, 0, others.size()); }
  void set_text_offset(std::size_t i, std::int64_t offset) { positions_[i].text_offset = offset; }
  void clear() {
    positions_.clear();
    top_.clear();
  }
  /// Replaces each position by an empty entry; the number of positions stays.
  void blank();

  /// Returns the text that a reader sees for a token; invalid UTF-8 is replaced. Empty without a source of texts.
  std::string text_of(TokenId token) const;
  /// Returns the bytes of a token; the bytes of consecutive tokens make the text.
  std::string bytes_of(TokenId token) const;

  void set_texts(std::shared_ptr<const TokenTexts> texts) { texts_ = std::move(texts); }
  const std::shared_ptr<const TokenTexts>& texts() const { return texts_; }

  /// Returns whether an object that was read from bytes is consistent.
  bool is_valid() const;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.positions_, self.top_); }

 private:
  struct Position {
    TokenId token_id = 0;
    float logprob = 0;
    std::int32_t rank = 0;
    std::int64_t text_offset = 0;
    std::uint64_t top_end = 0;  ///< end of this position's entries in top_

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.token_id, self.logprob, self.rank, self.text_offset, self.top_end);
    }
  };

  std::shared_ptr<const TokenTexts> texts_;
  std::vector<Position> positions_;
  std::vector<TokenLogprob> top_;
};

}  // namespace pagoda
