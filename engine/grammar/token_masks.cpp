#include "engine/grammar/token_masks.hpp"

#include <algorithm>
#include <bit>

#include "engine/grammar/limits.hpp"
#include "kernels/sample.hpp"

namespace pagoda::grammar {
namespace {

/// Slices of classes with fewer ASCII characters would hardly save anything.
constexpr int kMinAsciiOfSlice = 64;
/// With a loop that ends sooner, too many tokens would have to be checked one by one.
constexpr std::int32_t kMinCharacters = 16;

void set_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] |= std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32);
}
void clear_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32));
}
bool has_bit(std::span<const std::uint32_t> mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token) / 32] >> (static_cast<std::uint32_t>(token) % 32) & 1U) != 0;
}

}  // namespace

TokenMasks::TokenMasks(ItemSets& sets, const Vocabulary& vocabulary)
    : sets_(sets), vocabulary_(vocabulary), num_words_(kernels::mask_words(vocabulary.size())) {}

TokenMasks::Kept& TokenMasks::place() {
  constexpr std::size_t kMinMasks = 16;
  const std::size_t max_kept = std::max(kMinMasks, kMaxMaskBytes / (num_words_ * sizeof(std::uint32_t)));
  if (kept_.size() < max_kept) {
    Kept kept;
    kept.mask.resize(num_words_);
    return kept_.emplace_back(std::move(kept));
  }
  Kept& oldest = *std::ranges::min_element(kept_, {}, &Kept::last_used);
  place_of_.erase(oldest.set);
  return oldest;
}

std::span<const std::uint32_t> TokenMasks::mask(SetId stated, std::uint64_t max_work, std::size_t max_bytes) {
  ++now_;
  const SetId set = sets_.representative(stated, static_cast<std::int32_t>(vocabulary_.trie().height()));
  if (const auto found = place_of_.find(set); found != place_of_.end()) {
    kept_[found->second].last_used = now_;
    return kept_[found->second].mask;
  }
  Kept& kept = place();
  kept.set = ItemSets::kNothing;
  kept.last_used = 0;
  max_work_ = sets_.work() + max_work;
  max_bytes_ = sets_.num_bytes() + max_bytes;
  if (!compute(set, kept.mask)) return {};
  kept.set = set;
  kept.last_used = now_;
  place_of_.emplace(set, static_cast<std::size_t>(&kept - kept_.data()));
  return kept.mask;
}

/// Returns the shortcut that saves most, of the loops that the set's items are in.
TokenMasks::Shortcut TokenMasks::shortcut(SetId set) const {
  const Automaton& automaton = sets_.automaton();
  const CharacterLoop* best = nullptr;
  std::int32_t best_left = 0;
  for (const Item& item : sets_.items(set)) {
    const std::int32_t index = automaton.state(item.state).loop;
    if (index == Automaton::kNoLoop) continue;
    const CharacterLoop& loop = automaton.loop(index);
    const CharacterClass& characters = automaton.character_class(loop);
    const int num_ascii = std::popcount(characters.ascii[0]) + std::popcount(characters.ascii[1]);
    if (!characters.has_all_others || num_ascii < kMinAsciiOfSlice) continue;
    const std::int32_t left = loop.max_characters == kUnbounded ? kUnbounded : loop.max_characters - item.count;
    if (left != kUnbounded && left < kMinCharacters) continue;
    const bool is_better = best == nullptr || left == kUnbounded || (best_left != kUnbounded && left > best_left);
    if (!is_better) continue;
    best = &loop;
    best_left = left;
  }
  if (best == nullptr) return {};
  return {vocabulary_.slice(automaton.character_class(*best)), best_left};
}

bool TokenMasks::compute(SetId set, std::span<std::uint32_t> mask) {
  const auto [slice, max_characters] = shortcut(set);
  if (slice != nullptr) {
    std::ranges::copy(slice->mask, mask.begin());
    if (!walk(set, slice->others, mask)) return false;
    if (max_characters != kUnbounded && !check_longer(set, max_characters, mask)) return false;
  } else {
    std::ranges::fill(mask, 0U);
    if (!walk(set, vocabulary_.trie(), mask)) return false;
  }
  if (sets_.is_complete(set)) {
    for (const TokenId end : vocabulary_.ends()) set_bit(mask, end);
  }
  return true;
}

bool TokenMasks::walk(SetId from, const TokenTrie& trie, std::span<std::uint32_t> mask) {
  path_.resize(trie.height() + 1);
  path_[0] = from;
  for (std::size_t i = 0; i < trie.size();) {
    const TokenTrie::Node& node = trie.node(i);
    const std::uint64_t before = sets_.work();
    const SetId next = sets_.next(path_[node.depth], node.byte);
    if (sets_.work() != before && is_exhausted()) return false;
    if (next == ItemSets::kNothing) {
      i = node.end;
      continue;
    }
    path_[node.depth + 1] = next;
    for (const TokenId token : trie.tokens(i)) set_bit(mask, token);
    ++i;
  }
  return true;
}

/// Checks the tokens that are longer, for which the loop decides nothing.
bool TokenMasks::check_longer(SetId from, std::int32_t max_characters, std::span<std::uint32_t> mask) {
  for (const auto& [token, num_characters] : vocabulary_.lengths()) {
    if (num_characters <= static_cast<std::uint32_t>(max_characters)) break;
    if (!has_bit(mask, token)) continue;
    SetId set = from;
    for (const char c : vocabulary_.bytes(token)) {
      set = sets_.next(set, static_cast<std::uint8_t>(c));
      if (set == ItemSets::kNothing) break;
    }
    if (set == ItemSets::kNothing) clear_bit(mask, token);
    if (is_exhausted()) return false;
  }
  return true;
}

}  // namespace pagoda::grammar
