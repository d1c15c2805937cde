#include "engine/grammar/compiled_grammar.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/grammar/automaton.hpp"
#include "engine/grammar/grammar_rules.hpp"
#include "engine/grammar/grammar_trial.hpp"
#include "engine/grammar/item_sets.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/token_masks.hpp"
#include "engine/grammar/vocabulary.hpp"

namespace pagoda::grammar {

/// The item sets and masks of a grammar that have been computed so far.
struct Matcher::Memo {
  Memo(const Automaton& automaton, const Vocabulary& vocabulary) : sets(automaton), masks(sets, vocabulary) {}

  ItemSets sets;
  TokenMasks masks;
  std::size_t max_bytes = kMaxItemSetBytes;
};

struct CompiledGrammar::Impl {
  Impl(Automaton made, std::shared_ptr<const Vocabulary> of)
      : automaton(std::move(made)),
        vocabulary(std::move(of)),
        memo(std::make_shared<Matcher::Memo>(automaton, *vocabulary)) {}

  /// Call under the mutex when more may have been computed.
  void update_size() { num_bytes = automaton.num_bytes() + memo->sets.num_bytes() + memo->masks.num_bytes(); }

  const Automaton automaton;
  const std::shared_ptr<const Vocabulary> vocabulary;
  std::mutex mutex;                        ///< guards all memos
  std::shared_ptr<Matcher::Memo> memo;     ///< the newest
  std::atomic<std::size_t> num_bytes = 0;  ///< may be read while a mask is made
};

CompiledGrammar::CompiledGrammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::num_bytes() const {
  return impl_->num_bytes;
}

std::int64_t CompiledGrammar::vocab_size() const {
  return impl_->vocabulary->size();
}

std::string_view CompiledGrammar::bytes_of(TokenId token) const {
  return token >= 0 && token < vocab_size() ? impl_->vocabulary->bytes(token) : "";
}

Matcher::Matcher(SharedGrammar grammar, std::shared_ptr<MaskBudget> budget)
    : grammar_(std::move(grammar)), budget_(std::move(budget)) {
  const std::lock_guard lock(grammar_->impl().mutex);
  memo_ = grammar_->impl().memo;
  set_ = memo_->sets.start();
}
Matcher::Matcher(const Matcher&) = default;
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

Matcher Matcher::fork() const {
  return Matcher(*this);
}

/// When the memo is too large, drops all of it except the positions of matchers. If the position of this matcher alone
/// is too large, nothing may follow.
void Matcher::renew() {
  if (memo_->sets.num_bytes() <= memo_->max_bytes) return;
  CompiledGrammar::Impl& impl = grammar_->impl();
  if (impl.memo == memo_) impl.memo = std::make_shared<Memo>(impl.automaton, *impl.vocabulary);
  const std::size_t before = impl.memo->sets.num_bytes();
  set_ = impl.memo->sets.copy(memo_->sets, set_);
  memo_ = impl.memo;
  const std::size_t copied = memo_->sets.num_bytes() - before;
  memo_->max_bytes += 2 * copied;  // deeply nested: do not renew again with the next token
  if (copied > kMaxWalkBytes) set_ = ItemSets::kNothing;
}

bool Matcher::accept(TokenId token) {
  std::uint64_t ignored = 0;
  return accept(token, ignored);
}

bool Matcher::accept(TokenId token, std::uint64_t& max_work) {
  constexpr std::uint64_t kWorkOfToken = 10;
  if (has_ended_ || token < 0 || token >= grammar_->vocab_size()) return false;
  const Vocabulary& vocabulary = *grammar_->impl().vocabulary;
  const std::lock_guard lock(grammar_->impl().mutex);
  is_making_ = false;
  if (vocabulary.is_end(token)) return has_ended_ = memo_->sets.is_complete(set_);
  renew();
  const std::uint64_t work_before = memo_->sets.work();
  const std::string_view bytes = vocabulary.bytes(token);
  SetId set = bytes.empty() ? ItemSets::kNothing : set_;
  for (const char c : bytes) set = memo_->sets.next(set, static_cast<std::uint8_t>(c));
  set = memo_->sets.after_token(set);
  max_work -= std::min(max_work, kWorkOfToken + memo_->sets.work() - work_before);
  grammar_->impl().update_size();
  if (set == ItemSets::kNothing) return false;
  set_ = set;
  return true;
}

void Matcher::fill_mask(std::span<std::uint32_t> mask) {
  std::uint64_t max_work = kMaxMaskWork;
  fill_mask(mask, max_work);
}

bool Matcher::fill_mask(std::span<std::uint32_t> mask, std::uint64_t& max_work) {
  PAGODA_ASSERT(!has_ended_, "nothing follows an end");
  const std::lock_guard lock(grammar_->impl().mutex);
  if (!is_making_) {
    renew();
    budget_->work = std::min(budget_->work + budget_->more_per_mask, kMaxMaskWork);
    bytes_made_ = 0;
  }
  is_making_ = false;
  std::span<const std::uint32_t> found;
  if (set_ != ItemSets::kNothing) {
    const ItemSets& sets = memo_->sets;
    const std::uint64_t may_take = std::min(budget_->work, max_work);
    const std::uint64_t work_before = sets.work();
    const std::size_t bytes_before = sets.num_bytes();
    found = memo_->masks.mask(set_, may_take, kMaxWalkBytes - std::min(bytes_made_, kMaxWalkBytes));
    const std::uint64_t work = sets.work() - work_before;
    bytes_made_ += sets.num_bytes() - bytes_before;
    is_making_ = found.empty() && work > may_take && may_take < budget_->work;
    budget_->work -= std::min(budget_->work, work);
    max_work -= std::min(max_work, work);
  }
  grammar_->impl().update_size();
  if (found.empty()) {
    std::ranges::fill(mask, 0U);
  } else {
    std::ranges::copy(found, mask.begin());
  }
  return !is_making_;
}

Result<std::unique_ptr<Compiler>> Compiler::create(const text::Tokenizer& tokenizer, Config config) {
  const auto refuse = [](std::string problem) {
    return fail(ErrorCode::unsupported, std::move(problem), "structured_outputs");
  };
  std::erase_if(config.eos_token_ids, [&](TokenId id) { return id < 0 || id >= config.vocab_size; });
  if (config.eos_token_ids.empty()) {
    return refuse("structured output needs an end token, but this model names none");
  }
  const auto is_mark = [&](TokenId id) { return std::ranges::find(config.marks, id) != config.marks.end(); };
  std::vector<std::string> bytes(static_cast<std::size_t>(config.vocab_size));
  const auto num_known = std::min<std::size_t>(bytes.size(), tokenizer.vocab_size());
  std::size_t num_texts = 0;
  for (std::size_t id = 0; id < num_known; ++id) {
    const auto token = static_cast<TokenId>(id);
    if (auto text = is_mark(token) ? tokenizer.special_text(token) : tokenizer.token_bytes(token)) {
      bytes[id] = std::move(*text);  // a token with an empty text is never allowed
      ++num_texts;
    }
  }
  if (num_texts == 0)
    return refuse("structured output is not supported with a tokenizer that joins its tokens with spaces");
  return std::unique_ptr<Compiler>(
      new Compiler(std::make_shared<const Vocabulary>(bytes, std::move(config.eos_token_ids))));
}

Result<SharedGrammar> Compiler::compile(const StructuredOutput& constraint) const {
  const auto rules = grammar_rules(constraint);
  if (!rules) return fail(rules.error());
  auto automaton = Automaton::of(*rules);
  if (!automaton) return fail(ErrorCode::invalid_request, "the grammar is too large", "structured_outputs");
  auto impl = std::make_unique<CompiledGrammar::Impl>(std::move(*automaton), vocabulary_);
  if (auto problem = problem_of(impl->memo->sets, impl->memo->masks, *vocabulary_)) {
    return fail(ErrorCode::invalid_request, std::move(*problem), "structured_outputs");
  }
  impl->update_size();
  return std::make_shared<const CompiledGrammar>(std::move(impl));
}

}  // namespace pagoda::grammar
