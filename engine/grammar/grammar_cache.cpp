#include "engine/grammar/grammar_cache.hpp"

#include <algorithm>
#include <string>

namespace pagoda::grammar {

std::size_t GrammarCache::bytes_of(const Kept& kept) {
  return sizeof(Kept) + kept.constraint.num_bytes() + kept.constraint.choices.size() * sizeof(std::string) +
         kept.grammar->num_bytes();
}

std::size_t GrammarCache::bytes_of_all() const {
  std::size_t bytes = 0;
  for (const Kept& kept : kept_) bytes += bytes_of(kept);
  return bytes;
}

std::list<GrammarCache::Kept>::iterator GrammarCache::look_up(const StructuredOutput& constraint) {
  return std::ranges::find(kept_, constraint, &Kept::constraint);
}

void GrammarCache::drop_oldest() {
  std::size_t bytes = bytes_of_all();
  while (bytes > max_bytes_) {
    bytes -= std::min(bytes, bytes_of(kept_.back()));  // it may have grown since the sum was made
    kept_.pop_back();
    if (kept_.empty()) break;
  }
}

SharedGrammar GrammarCache::find(const StructuredOutput& constraint) {
  const std::lock_guard lock(mutex_);
  const auto found = look_up(constraint);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  SharedGrammar grammar = kept_.front().grammar;
  drop_oldest();
  return grammar;
}

void GrammarCache::keep(const StructuredOutput& constraint, const SharedGrammar& grammar) {
  const std::lock_guard lock(mutex_);
  if (look_up(constraint) != kept_.end()) return;
  kept_.push_front({constraint, grammar});
  drop_oldest();
}

std::size_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_of_all();
}

}  // namespace pagoda::grammar
