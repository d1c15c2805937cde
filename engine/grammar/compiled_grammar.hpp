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

/// A grammar compiled for the tokens of one vocabulary. Thread-safe. Matchers share what they find out about it.
class CompiledGrammar {
 public:
  struct Impl;
  explicit CompiledGrammar(std::unique_ptr<Impl> impl);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  std::size_t num_bytes() const;  ///< approximate memory that it takes now
  std::int64_t vocab_size() const;
  /// Returns the text that the token stands for; empty if it stands for none, as an end token does.
  std::string_view bytes_of(TokenId token) const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

using SharedGrammar = std::shared_ptr<const CompiledGrammar>;

/// The work that the masks of a request may still take, in items that are looked at.
struct MaskBudget {
  std::uint64_t work = kMaxMaskWork;
  std::uint64_t more_per_mask = kMaskWorkPerMask;  ///< added before each mask; `work` stays at most kMaxMaskWork
};

/// The position of one sequence in a grammar. A plain state machine. One owner has all matchers that share a budget.
class Matcher {
 public:
  explicit Matcher(SharedGrammar grammar, std::shared_ptr<MaskBudget> budget = std::make_shared<MaskBudget>());
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  /// Returns another matcher at the same position, with the same budget.
  Matcher fork() const;
  /// Continues the sequence with `token`. Returns false, and changes nothing, if the grammar does not allow the token
  /// or the sequence has ended.
  bool accept(TokenId token);
  /// Accepts `token` as above, and lowers `max_work` by the work that it took.
  bool accept(TokenId token, std::uint64_t& max_work);
  /// Returns whether the end was accepted, so that nothing may follow.
  bool has_ended() const { return has_ended_; }
  /// Sets `mask`, kernels::mask_words(vocab_size) words, to the tokens that may follow. End tokens are among them if
  /// the text so far is complete. The mask is empty if finding it would take more than the budget. Do not call after
  /// the end.
  void fill_mask(std::span<std::uint32_t> mask);
  /// Fills the mask as above, but looks at about `max_work` items only, and lowers `max_work` by their number. Returns
  /// whether the mask is finished; if not, the next call continues it. The division of the work does not change the
  /// mask.
  bool fill_mask(std::span<std::uint32_t> mask, std::uint64_t& max_work);

 private:
  struct Memo;
  friend struct CompiledGrammar::Impl;
  Matcher(const Matcher&);
  void renew();

  SharedGrammar grammar_;
  std::shared_ptr<MaskBudget> budget_;
  std::shared_ptr<Memo> memo_;  ///< the memo that set_ belongs to
  std::uint32_t set_;           ///< SetId
  bool has_ended_ = false;
  // State of a mask that is not finished:
  bool is_making_ = false;
  std::size_t bytes_made_ = 0;
};

/// Compiles grammars for one vocabulary, in milliseconds. Not thread-safe: one owner.
class Compiler {
 public:
  struct Config {
    /// Size of the model's vocabulary: tokens beyond the tokenizer's are never allowed.
    std::int64_t vocab_size = 0;
    std::vector<TokenId> eos_token_ids;  ///< tokens that end a text and come nowhere else
    /// Special tokens that stand for their text, as "<tool_call>" may. No other special token is ever allowed.
    std::vector<TokenId> marks = {};
  };

  /// Error: unsupported, param = "structured_outputs", if the model has no end token, or if the texts of the tokens do
  /// not show how the tokenizer joins them.
  static Result<std::unique_ptr<Compiler>> create(const text::Tokenizer& tokenizer, Config config);

  /// Errors: invalid_request, param = "structured_outputs": errors of grammar_rules; a grammar that is too large or too
  /// ambiguous.
  Result<SharedGrammar> compile(const StructuredOutput& constraint) const;

 private:
  explicit Compiler(std::shared_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace pagoda::grammar
