#include "engine/grammar/grammar_cache.hpp"

#include <algorithm>
#include <string>

namespace pagoda::grammar {

std::size_t GrammarCache::bytes_of(const Kept& kept) {
  return sizeof(Kept) + kept.wish.num_bytes() + kept.wish.choices.size() * sizeof(std::string) +
         kept.grammar->num_bytes();
}

std::list<GrammarCache::Kept>::iterator GrammarCache::look_up(const StructuredOutput& wish) {
  return std::ranges::find(kept_, wish, &Kept::wish);
}

SharedGrammar GrammarCache::find(const StructuredOutput& wish) {
  const std::lock_guard lock(mutex_);
  const auto found = look_up(wish);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front().grammar;
}

void GrammarCache::keep(const StructuredOutput& wish, const SharedGrammar& grammar) {
  const std::lock_guard lock(mutex_);
  if (look_up(wish) != kept_.end()) return;
  kept_.push_front({wish, grammar});
  bytes_ += bytes_of(kept_.front());
  while (bytes_ > max_bytes_) {
    bytes_ -= bytes_of(kept_.back());
    kept_.pop_back();
  }
}

std::size_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace pagoda::grammar
