#include "engine/grammar/grammar_cache.hpp"

#include <algorithm>
#include <string>

namespace pagoda::grammar {

std::size_t GrammarCache::bytes_of(const Kept& kept) {
  return sizeof(Kept) + kept.wish.num_bytes() + kept.wish.choices.size() * sizeof(std::string) +
         kept.grammar->num_bytes();
}

std::size_t GrammarCache::bytes_of_all() const {
  std::size_t bytes = 0;
  for (const Kept& kept : kept_) bytes += bytes_of(kept);
  return bytes;
}

std::list<GrammarCache::Kept>::iterator GrammarCache::look_up(const StructuredOutput& wish) {
  return std::ranges::find(kept_, wish, &Kept::wish);
}

void GrammarCache::drop_oldest() {
  std::size_t bytes = bytes_of_all();
  while (bytes > max_bytes_) {
    bytes -= std::min(bytes, bytes_of(kept_.back()));  // it may have grown meanwhile
    kept_.pop_back();
    if (kept_.empty()) break;
  }
}

SharedGrammar GrammarCache::find(const StructuredOutput& wish) {
  const std::lock_guard lock(mutex_);
  const auto found = look_up(wish);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  SharedGrammar grammar = kept_.front().grammar;
  drop_oldest();
  return grammar;
}

void GrammarCache::keep(const StructuredOutput& wish, const SharedGrammar& grammar) {
  const std::lock_guard lock(mutex_);
  if (look_up(wish) != kept_.end()) return;
  kept_.push_front({wish, grammar});
  drop_oldest();
}

std::size_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_of_all();
}

}  // namespace pagoda::grammar
