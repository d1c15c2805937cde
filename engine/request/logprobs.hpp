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

/// The texts of single tokens; the tokenizer knows them. Thread-safe.
class TokenTexts {
 public:
  virtual ~TokenTexts() = default;
  /// What a reader sees for the token alone; bytes that are no whole characters are U+FFFD.
  virtual std::string token_piece_text(TokenId token) const = 0;
  /// The bytes that the token stands for behind others; nothing where that depends on the others.
  virtual std::optional<std::string> token_bytes(TokenId token) const = 0;
};

/// A token and its log-probability.
struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.token_id, self.logprob); }
  bool operator==(const TokenLogprob&) const = default;
};

/// Log-probabilities at one position, of the model's distribution before temperature and truncation. Valid while the
/// Logprobs that it is of is not changed.
struct LogprobEntry {
  TokenId token_id = 0;
  float logprob = 0;
  std::int32_t rank = 0;  ///< 1 = the most likely token
  /// Number of characters in front of the token in the text of its sequence, or of its prompt; a stop string that ends
  /// the text counts. Of the tokens that make one character all have the place of that character.
  std::int64_t text_offset = 0;
  std::span<const TokenLogprob> top = {};  ///< the k best, best first; or logprob_token_ids, in their order
};

/// The log-probabilities of tokens in a row. They are arrays of numbers: the texts of tokens are made when somebody
/// writes them.
class Logprobs {
 public:
  Logprobs() = default;
  /// `texts`: where the tokens' texts come from. May be null where nobody asks for texts.
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

  /// Number of log-probabilities, those of the tokens themselves included.
  std::size_t num_logprobs() const { return positions_.size() + top_.size(); }

  void add(const TokenReport& report, std::int64_t text_offset);
  void add(const LogprobEntry& entry);
  /// Adds the entries [first, last) of others; takes over their texts where it has none.
  void add(const Logprobs& others, std::size_t first, std::size_t last);
  void add(const Logprobs& others) { add(others, 0, others.size()); }
  void set_text_offset(std::size_t i, std::int64_t offset) { positions_[i].text_offset = offset; }
  void clear() {
    positions_.clear();
    top_.clear();
  }
  /// As many positions, which tell nothing.
  void blank();

  /// What a reader sees for a token; bytes that are no UTF-8 are replaced.
  std::string text_of(TokenId token) const;
  /// The bytes of a token; those of tokens in a row make the text.
  std::string bytes_of(TokenId token) const;

  void set_texts(std::shared_ptr<const TokenTexts> texts) { texts_ = std::move(texts); }
  const std::shared_ptr<const TokenTexts>& texts() const { return texts_; }

  /// Whether one that was read from bytes holds what it says.
  bool is_sound() const;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.positions_, self.top_); }

 private:
  struct Position {
    TokenId token_id = 0;
    float logprob = 0;
    std::int32_t rank = 0;
    std::int64_t text_offset = 0;
    std::uint64_t top_end = 0;  ///< of top_: where this position's entries end

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.token_id, self.logprob, self.rank, self.text_offset, self.top_end);
    }
  };

  std::shared_ptr<const TokenTexts> texts_;
  std::vector<Position> positions_;
  std::vector<TokenLogprob> top_;
};

}  // namespace pagoda
