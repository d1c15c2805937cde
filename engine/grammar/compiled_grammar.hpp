#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/request/structured_output.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

class Vocabulary;

/// A grammar and the tokens of one vocabulary. Thread-safe; what matchers find out about it is kept for the others.
class CompiledGrammar {
 public:
  struct Impl;
  explicit CompiledGrammar(std::unique_ptr<Impl> impl);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  std::size_t num_bytes() const;  ///< of memory now, about
  std::int64_t vocab_size() const;
  /// What the token stands for; empty where that is nothing, as of end tokens.
  std::string_view bytes_of(TokenId token) const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

using SharedGrammar = std::shared_ptr<const CompiledGrammar>;

/// What the masks of a request may still take of items that are looked at.
struct MaskBudget {
  std::uint64_t work = kMaxMaskWork;
  std::uint64_t more_per_mask = kMaskWorkPerMask;  ///< as long as it is no more than kMaxMaskWork
};

/// Where one sequence is in a grammar. A plain state machine; one owner, of all that share a budget.
class Matcher {
 public:
  explicit Matcher(SharedGrammar grammar, std::shared_ptr<MaskBudget> budget = std::make_shared<MaskBudget>());
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  /// Another matcher that stands where this one does, with the same budget.
  Matcher fork() const;
  /// The sequence goes on with `token`. False where the grammar does not allow it, or it has ended: nothing changes.
  bool accept(TokenId token);
  /// Does the same, and lowers `max_work` by what it took.
  bool accept(TokenId token, std::uint64_t& max_work);
  /// The end was accepted: nothing may follow.
  bool has_ended() const { return has_ended_; }
  /// Sets `mask`, kernels::mask_words(vocab_size) words, to the tokens that may follow. End tokens are among them where
  /// the text so far is complete. None is where finding out would take more than the budget. Not when it has ended.
  void fill_mask(std::span<std::uint32_t> mask);
  /// Does the same with about `max_work` items looked at, and lowers `max_work` by those. Returns whether that was
  /// enough; if not, another call goes on from there. What becomes of the mask does not depend on how it is divided.
  bool fill_mask(std::span<std::uint32_t> mask, std::uint64_t& max_work);

 private:
  struct Memo;
  friend struct CompiledGrammar::Impl;
  Matcher(const Matcher&);
  void renew();

  SharedGrammar grammar_;
  std::shared_ptr<MaskBudget> budget_;
  std::shared_ptr<Memo> memo_;  ///< what set_ is one of
  std::uint32_t set_;           ///< SetId
  bool has_ended_ = false;
  // Of a mask that is not finished:
  bool is_making_ = false;
  std::size_t bytes_made_ = 0;
};

/// Compiles grammars for one vocabulary, in milliseconds. Not thread-safe: one owner.
class Compiler {
 public:
  struct Config {
    std::int64_t vocab_size = 0;         ///< of the model: tokens beyond the tokenizer's are never allowed
    std::vector<TokenId> eos_token_ids;  ///< that end a text, and come nowhere else
    /// Special tokens that stand for their text, as "<tool_call>" may. No other special token is ever allowed.
    std::vector<TokenId> marks = {};
  };

  /// Error: unsupported, param = "structured_outputs", where the model has no end token, or the tokenizer joins its
  /// tokens in a way that their texts do not tell.
  static Result<std::unique_ptr<Compiler>> create(const text::Tokenizer& tokenizer, Config config);

  /// Errors: invalid_request, param = "structured_outputs": those of grammar_rules, and what is too large or too
  /// ambiguous.
  Result<SharedGrammar> compile(const StructuredOutput& constraint) const;

 private:
  explicit Compiler(std::shared_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace pagoda::grammar
