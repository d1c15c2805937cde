// The only file that knows XGrammar. What it throws ends here.

#include "engine/grammar/compiled_grammar.hpp"

#include <algorithm>
#include <exception>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <utility>

#if PAGODA_HAS_GRAMMAR
#include <xgrammar/compiler.h>
#include <xgrammar/matcher.h>
#include <xgrammar/tokenizer_info.h>
#endif

#include "engine/grammar/grammar_rules.hpp"

namespace pagoda::grammar {

#if PAGODA_HAS_GRAMMAR

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
  std::size_t num_bytes = 0;
};

struct Matcher::Impl {
  SharedGrammar grammar;  ///< what the matcher refers to
  xgrammar::GrammarMatcher matcher;
};

struct Compiler::Impl {
  struct Kept {
    StructuredOutput wish;
    SharedGrammar grammar;
  };

  Impl(const xgrammar::TokenizerInfo& vocabulary, std::size_t most_bytes)
      : compiler(vocabulary, /*max_threads=*/1, /*cache_enabled=*/false), max_cached_bytes(most_bytes) {}

  void keep(const StructuredOutput& wish, const SharedGrammar& grammar) {
    cached_bytes += bytes_of(wish, *grammar);
    cache.push_front({wish, grammar});
    while (cached_bytes > max_cached_bytes && !cache.empty()) {
      cached_bytes -= bytes_of(cache.back().wish, *cache.back().grammar);
      cache.pop_back();
    }
  }

  static std::size_t bytes_of(const StructuredOutput& wish, const CompiledGrammar& grammar) {
    std::size_t bytes = 1024 + wish.text.size() + grammar.num_bytes();
    for (const std::string& text : wish.choices) bytes += text.size() + sizeof(text);
    return bytes;
  }

  xgrammar::GrammarCompiler compiler;
  std::list<Kept> cache;  ///< the last used first
  std::size_t cached_bytes = 0;
  std::size_t max_cached_bytes = 0;
};

bool is_supported() {
  return true;
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;
std::size_t CompiledGrammar::num_bytes() const {
  return impl_->num_bytes;
}

Matcher::Matcher(SharedGrammar grammar) {
  xgrammar::GrammarMatcher matcher(grammar->impl().grammar);
  impl_ = std::make_unique<Impl>(Impl{std::move(grammar), std::move(matcher)});
}
Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

Matcher Matcher::fork() const {
  return Matcher(std::make_unique<Impl>(Impl{impl_->grammar, impl_->matcher.Fork()}));
}

bool Matcher::accept(TokenId token) {
  return !has_ended() && impl_->matcher.AcceptToken(token);
}

bool Matcher::has_ended() const {
  return impl_->matcher.IsTerminated();
}

void Matcher::fill_mask(std::span<std::uint32_t> mask) {
  PAGODA_ASSERT(!has_ended(), "nothing follows an end");
  auto num_words = static_cast<std::int64_t>(mask.size());
  DLTensor tensor{};
  tensor.data = mask.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &num_words;
  // It writes the mask also where all tokens may follow.
  impl_->matcher.FillNextTokenBitmask(&tensor);
}

Compiler::Compiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Compiler::~Compiler() = default;

Result<std::unique_ptr<Compiler>> Compiler::create(const text::Tokenizer& tokenizer, Config config) {
  const auto refuse = [](std::string problem) {
    return fail(ErrorCode::unsupported, std::move(problem), "structured_outputs");
  };
  std::erase_if(config.eos_token_ids, [&](TokenId id) { return id < 0 || id >= config.vocab_size; });
  if (config.eos_token_ids.empty()) {
    return refuse("structured output needs a model with an end token, which this one does not name");
  }
  std::vector<std::string> bytes(static_cast<std::size_t>(config.vocab_size));
  const auto num_known = std::min<std::size_t>(bytes.size(), tokenizer.vocab_size());
  std::size_t num_texts = 0;
  for (std::size_t id = 0; id < num_known; ++id) {
    if (auto text = tokenizer.token_bytes(static_cast<TokenId>(id))) {
      bytes[id] = std::move(*text);  // an empty one is never allowed
      ++num_texts;
    }
  }
  if (num_texts == 0) return refuse("structured output is not supported with a tokenizer that joins its tokens by spaces");
  try {
    const xgrammar::TokenizerInfo vocabulary(bytes, xgrammar::VocabType::RAW, static_cast<int>(config.vocab_size),
                                             config.eos_token_ids);
    return std::unique_ptr<Compiler>(new Compiler(std::make_unique<Impl>(vocabulary, config.max_cached_bytes)));
  } catch (const std::exception& problem) {
    return refuse(std::string("structured output is not possible with this tokenizer: ") + problem.what());
  }
}

Result<SharedGrammar> Compiler::compile(const StructuredOutput& wish) {
  auto& cache = impl_->cache;
  const auto known = std::ranges::find(cache, wish, &Impl::Kept::wish);
  if (known != cache.end()) {
    cache.splice(cache.begin(), cache, known);
    return cache.front().grammar;
  }
  const auto ebnf = grammar_ebnf(wish);
  if (!ebnf) return fail(ebnf.error());
  try {
    const xgrammar::CompiledGrammar compiled = impl_->compiler.CompileGrammar(*ebnf);
    auto grammar = std::make_shared<const CompiledGrammar>(std::make_unique<const CompiledGrammar::Impl>(
        CompiledGrammar::Impl{compiled, compiled.MemorySizeBytes()}));
    impl_->keep(wish, grammar);
    return grammar;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::invalid_request, "the grammar takes more memory than there is", "structured_outputs");
  } catch (const std::exception& problem) {
    return fail(ErrorCode::invalid_request, std::string("the grammar cannot be compiled: ") + problem.what(),
                "structured_outputs");
  }
}

#else

struct CompiledGrammar::Impl {};
struct Matcher::Impl {};
struct Compiler::Impl {};

bool is_supported() {
  return false;
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;
std::size_t CompiledGrammar::num_bytes() const {
  return 0;
}

// Nobody comes by a grammar, so nobody by a matcher.
Matcher::Matcher(SharedGrammar) {
  PAGODA_ASSERT(false, "a build without XGrammar has no grammars");
}
Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher Matcher::fork() const {
  return Matcher(SharedGrammar());
}
bool Matcher::accept(TokenId) {
  return false;
}
bool Matcher::has_ended() const {
  return true;
}
void Matcher::fill_mask(std::span<std::uint32_t>) {}

Compiler::Compiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Compiler::~Compiler() = default;

Result<std::unique_ptr<Compiler>> Compiler::create(const text::Tokenizer&, Config) {
  return fail(ErrorCode::unsupported, "this build has no structured output (scripts/fetch-xgrammar, then build again)",
              "structured_outputs");
}
Result<SharedGrammar> Compiler::compile(const StructuredOutput& wish) {
  const auto ebnf = grammar_ebnf(wish);
  if (!ebnf) return fail(ebnf.error());
  return fail(ErrorCode::unsupported, "this build has no structured output", "structured_outputs");
}

#endif

}  // namespace pagoda::grammar
