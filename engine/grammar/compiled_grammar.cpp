// The only file that knows XGrammar. What it throws ends here.

#include "engine/grammar/compiled_grammar.hpp"

#include <algorithm>
#include <bit>
#include <ctime>
#include <exception>
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
#include "kernels/sample.hpp"

namespace pagoda::grammar {

#if PAGODA_HAS_GRAMMAR

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
  std::size_t num_bytes = 0;
  std::int64_t vocab_size = 0;
};

struct Matcher::Impl {
  SharedGrammar grammar;  ///< what the matcher refers to
  xgrammar::GrammarMatcher matcher;
};

struct Compiler::Impl {
  xgrammar::GrammarCompiler compiler;
  xgrammar::GrammarCompiler of_bytes;  ///< for trials
  std::int64_t vocab_size;

  /// Whether the grammar can be compiled, and its masks be made, in a time that others can wait for. Small grammars may
  /// take minutes, or a tenth of a second for each token.
  std::optional<std::string> problem_of(const std::string& ebnf) const;
  std::optional<std::string> problem_of(const SharedGrammar& grammar) const;
};

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowness = 20;
#else
constexpr double kSlowness = 1;
#endif
constexpr double kMaxTrialCompileMs =
    kSlowness * 80;  ///< over bytes; over a vocabulary of 150k it takes up to 200 times as long
constexpr int kTrialTokens = 48;
constexpr double kMaxTrialMaskMs = kSlowness * 10;  ///< on average
/// A text of bytes that is longer than most answers: what parsing it costs must neither be much, nor grow with it.
constexpr int kTrialBytes = 4096;
constexpr double kMaxTrialParseMs = kSlowness * 250;
constexpr double kMaxGrowth = 8;  ///< of the last quarter over the first, where that is no noise
constexpr double kLeastQuarterMs = kSlowness * 40;
/// Of one that is compiled: requests hold theirs while they live.
constexpr std::size_t kMaxCompiledBytes = std::size_t{64} << 20;

/// What this thread has computed so far: unlike the time on the wall, it does not tell of others that run.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

xgrammar::GrammarCompiler make_compiler(const std::vector<std::string>& tokens, const TokenIds& eos_token_ids) {
  const xgrammar::TokenizerInfo vocabulary(tokens, xgrammar::VocabType::RAW, static_cast<int>(tokens.size()),
                                           eos_token_ids);
  return {vocabulary, /*max_threads=*/1, /*cache_enabled=*/false};
}

xgrammar::GrammarCompiler byte_compiler() {
  constexpr TokenId kEnd = 256;
  std::vector<std::string> bytes;
  for (int byte = 0; byte < kEnd; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();
  return make_compiler(bytes, {kEnd});
}

SharedGrammar shared(const xgrammar::CompiledGrammar& compiled, std::int64_t vocab_size) {
  return std::make_shared<const CompiledGrammar>(std::make_unique<const CompiledGrammar::Impl>(
      CompiledGrammar::Impl{compiled, compiled.MemorySizeBytes(), vocab_size}));
}

/// A token of the mask, from `first` on and then from the beginning.
TokenId allowed_from(std::span<const std::uint32_t> mask, std::size_t first) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t word = (first + i) % mask.size();
    if (mask[word] != 0) return static_cast<TokenId>(word * 32) + std::countr_zero(mask[word]);
  }
  return -1;
}

/// One of the bytes that the mask allows, by `random`; the end where there is no other.
TokenId allowed_byte(std::span<const std::uint32_t> mask, std::uint64_t random) {
  constexpr std::size_t kByteWords = 256 / 32;
  std::uint64_t count = 0;
  for (const std::uint32_t word : mask.first(kByteWords)) count += static_cast<std::uint64_t>(std::popcount(word));
  if (count == 0) return allowed_from(mask, kByteWords);
  std::uint64_t nth = random % count;
  for (TokenId byte = 0; byte < 256; ++byte) {
    if ((mask[static_cast<std::size_t>(byte) / 32] >> (byte % 32) & 1U) != 0 && nth-- == 0) return byte;
  }
  return -1;
}

/// Whether parsing takes ever longer, as of grammars that can read a text in ever more ways.
bool is_too_ambiguous(const SharedGrammar& of_bytes) {
  std::vector<std::uint32_t> mask(kernels::mask_words(of_bytes->vocab_size()));
  Matcher matcher(of_bytes);
  double quarters_ms[4] = {};
  for (int i = 0; i < kTrialBytes; ++i) {
    const double begun_ms = cpu_ms();
    if (matcher.has_ended()) matcher = Matcher(of_bytes);
    matcher.fill_mask(mask);
    constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15U;
    if (!matcher.accept(allowed_byte(mask, (static_cast<std::uint64_t>(i) + 1) * kMix >> 17U))) return false;
    double& quarter_ms = quarters_ms[i * 4 / kTrialBytes];
    quarter_ms += cpu_ms() - begun_ms;
    if (quarter_ms > kMaxTrialParseMs) return true;
  }
  return quarters_ms[3] > kLeastQuarterMs && quarters_ms[3] > kMaxGrowth * quarters_ms[0];
}

}  // namespace

std::optional<std::string> Compiler::Impl::problem_of(const std::string& ebnf) const {
  const double begun_ms = cpu_ms();
  xgrammar::GrammarCompiler trial = of_bytes;
  const auto compiled = trial.CompileGrammar(ebnf);
  if (cpu_ms() - begun_ms > kMaxTrialCompileMs) {
    return "the grammar takes too long to be compiled: too much may come at too many places of it";
  }
  constexpr std::int64_t kBytesAndEnd = 257;
  if (is_too_ambiguous(shared(compiled, kBytesAndEnd))) {
    return "the grammar is too ambiguous: a text takes ever longer to be read";
  }
  return std::nullopt;
}

std::optional<std::string> Compiler::Impl::problem_of(const SharedGrammar& grammar) const {
  std::vector<std::uint32_t> mask(kernels::mask_words(vocab_size));
  Matcher matcher(grammar);
  double used_ms = 0;
  for (std::size_t i = 0; i < kTrialTokens; ++i) {
    if (matcher.has_ended()) matcher = Matcher(grammar);
    const double begun_ms = cpu_ms();
    matcher.fill_mask(mask);
    constexpr std::size_t kStride = 7919;
    const bool goes_on = matcher.accept(allowed_from(mask, i * kStride));
    used_ms += cpu_ms() - begun_ms;
    if (used_ms > kTrialTokens * kMaxTrialMaskMs) return "the grammar is too ambiguous: its masks take too long";
    if (!goes_on) break;
  }
  return std::nullopt;
}

bool is_supported() {
  return true;
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;
std::size_t CompiledGrammar::num_bytes() const {
  return impl_->num_bytes;
}
std::int64_t CompiledGrammar::vocab_size() const {
  return impl_->vocab_size;
}
std::string_view CompiledGrammar::bytes_of(TokenId token) const {
  const auto& bytes = impl_->grammar.GetTokenizerInfo().GetDecodedVocab();
  return token >= 0 && token < std::ssize(bytes) ? std::string_view(bytes[static_cast<std::size_t>(token)]) : "";
}

// What XGrammar throws leaves a matcher without an Impl, or nothing that may follow.
Matcher::Matcher(SharedGrammar grammar) {
  try {
    xgrammar::GrammarMatcher matcher(grammar->impl().grammar);
    impl_ = std::make_unique<Impl>(Impl{std::move(grammar), std::move(matcher)});
  } catch (const std::exception&) {
    impl_ = nullptr;
  }
}
Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

Matcher Matcher::fork() const {
  if (!impl_) return Matcher(std::unique_ptr<Impl>());
  try {
    return Matcher(std::make_unique<Impl>(Impl{impl_->grammar, impl_->matcher.Fork()}));
  } catch (const std::exception&) {
    return Matcher(std::unique_ptr<Impl>());
  }
}

bool Matcher::accept(TokenId token) {
  if (has_ended() || token < 0 || token >= impl_->grammar->vocab_size()) return false;
  try {
    return impl_->matcher.AcceptToken(token);
  } catch (const std::exception&) {
    return false;
  }
}

bool Matcher::has_ended() const {
  return !impl_ || impl_->matcher.IsTerminated();
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
  try {
    // It writes the mask also where all tokens may follow.
    impl_->matcher.FillNextTokenBitmask(&tensor);
  } catch (const std::exception&) {
    std::ranges::fill(mask, 0U);
  }
  // It sets bits behind the vocabulary's too.
  if (const auto rest = impl_->grammar->vocab_size() % 32; rest != 0) mask.back() &= (1U << rest) - 1;
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
  const auto is_mark = [&](TokenId id) { return std::ranges::find(config.marks, id) != config.marks.end(); };
  std::vector<std::string> bytes(static_cast<std::size_t>(config.vocab_size));
  const auto num_known = std::min<std::size_t>(bytes.size(), tokenizer.vocab_size());
  std::size_t num_texts = 0;
  for (std::size_t id = 0; id < num_known; ++id) {
    const auto token = static_cast<TokenId>(id);
    if (auto text = is_mark(token) ? tokenizer.special_text(token) : tokenizer.token_bytes(token)) {
      bytes[id] = std::move(*text);  // an empty one is never allowed
      ++num_texts;
    }
  }
  if (num_texts == 0)
    return refuse("structured output is not supported with a tokenizer that joins its tokens by spaces");
  try {
    return std::unique_ptr<Compiler>(new Compiler(
        std::make_unique<Impl>(Impl{make_compiler(bytes, config.eos_token_ids), byte_compiler(), config.vocab_size})));
  } catch (const std::exception& problem) {
    return refuse(std::string("structured output is not possible with this tokenizer: ") + problem.what());
  }
}

Result<SharedGrammar> Compiler::compile(const StructuredOutput& wish) {
  const auto refuse = [](std::string problem) {
    return fail(ErrorCode::invalid_request, std::move(problem), "structured_outputs");
  };
  try {
    const auto ebnf = grammar_ebnf(wish);
    if (!ebnf) return fail(ebnf.error());
    if (auto problem = impl_->problem_of(*ebnf)) return refuse(std::move(*problem));
    const auto grammar = shared(impl_->compiler.CompileGrammar(*ebnf), impl_->vocab_size);
    if (grammar->num_bytes() > kMaxCompiledBytes) {
      return refuse("the grammar takes " + std::to_string(grammar->num_bytes() >> 20) +
                    " MiB when it is compiled; at most " + std::to_string(kMaxCompiledBytes >> 20) + " are allowed");
    }
    if (auto problem = impl_->problem_of(grammar)) return refuse(std::move(*problem));
    return grammar;
  } catch (const std::bad_alloc&) {
    return refuse("the grammar takes more memory than there is");
  } catch (const std::exception& problem) {
    return refuse(std::string("the grammar cannot be compiled: ") + problem.what());
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
std::int64_t CompiledGrammar::vocab_size() const {
  return 0;
}

std::string_view CompiledGrammar::bytes_of(TokenId) const {
  return {};
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
