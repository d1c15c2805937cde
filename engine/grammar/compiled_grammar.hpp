#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/request/structured_output.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Is this build one with structured output?
bool is_supported();

/// A grammar and the tokens of one vocabulary, prepared for matchers. Immutable: any number of threads may use it.
class CompiledGrammar {
 public:
  struct Impl;  ///< XGrammar's
  explicit CompiledGrammar(std::unique_ptr<const Impl> impl);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  std::size_t num_bytes() const;  ///< of memory, about
  std::int64_t vocab_size() const;
  /// What the token stands for; empty where that is nothing, as of end tokens.
  std::string_view bytes_of(TokenId token) const;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

using SharedGrammar = std::shared_ptr<const CompiledGrammar>;

/// Where one sequence is in a grammar. A plain state machine; one owner.
class Matcher {
 public:
  explicit Matcher(SharedGrammar grammar);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  /// Another matcher that stands where this one does.
  Matcher fork() const;
  /// The sequence goes on with `token`. False where the grammar does not allow it, or it has ended: nothing changes.
  bool accept(TokenId token);
  /// The end was accepted, or something went wrong: nothing may follow.
  bool has_ended() const;
  /// Sets `mask`, kernels::mask_words(vocab_size) words, to the tokens that may follow. End tokens are among them where
  /// the text so far is complete. Not when it has ended.
  void fill_mask(std::span<std::uint32_t> mask);

 private:
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Compiles grammars for one vocabulary. Compiling takes milliseconds, of large grammars seconds. Not thread-safe: one
/// owner.
class Compiler {
 public:
  struct Config {
    std::int64_t vocab_size = 0;         ///< of the model: tokens beyond the tokenizer's are never allowed
    std::vector<TokenId> eos_token_ids;  ///< that end a text, and come nowhere else
    /// Special tokens that stand for their text, as "<tool_call>" may. No other special token is ever allowed.
    std::vector<TokenId> marks = {};
  };

  /// Error: unsupported, param = "structured_outputs", where the build has no XGrammar, the model no end token, or the
  /// tokenizer joins its tokens in a way that their texts do not tell.
  static Result<std::unique_ptr<Compiler>> create(const text::Tokenizer& tokenizer, Config config);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// Errors: invalid_request, param = "structured_outputs"; see grammar_ebnf.
  Result<SharedGrammar> compile(const StructuredOutput& wish);

 private:
  struct Impl;
  explicit Compiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagoda::grammar
