#include "engine/grammar/grammar_trial.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "engine/grammar/limits.hpp"

namespace pagoda::grammar {
namespace {

/// Length of the trial text, which is longer than most answers. Reading it must neither cost much, nor cost more and
/// more.
constexpr std::size_t kTrialBytes = 4096;
constexpr std::uint64_t kMaxQuarterWork = 5'000'000;  ///< some hundredths of a second
/// Limit of the last quarter's work over the first's, if it is above kMinQuarterWork.
constexpr std::uint64_t kMaxGrowth = 8;
constexpr std::uint64_t kMinQuarterWork = 1'000'000;
constexpr std::size_t kTrialTokens = 4;

/// Numbers that look random, and are equal in each run.
class Numbers {
 public:
  std::size_t below(std::size_t end) {
    state_ = state_ * 0x5851F42D4C957F2DU + 0x14057B7EF767814FU;
    return static_cast<std::size_t>(state_ >> 33U) % end;
  }

 private:
  std::uint64_t state_ = 1;
};

/// Returns a byte that may come next.
std::uint8_t some_byte(const ItemSets& sets, SetId set, Numbers& numbers) {
  const auto items = sets.items(set);
  const Automaton::State& state = sets.automaton().state(items[numbers.below(items.size())].state);
  const auto edges = sets.automaton().edges(state);
  const bool is_other = state.kind == Automaton::Kind::free_text && (edges.empty() || numbers.below(2) == 0);
  if (is_other) return static_cast<std::uint8_t>('a' + numbers.below('z' - 'a' + 1));
  const ByteRange bytes = edges[numbers.below(edges.size())].bytes;
  return static_cast<std::uint8_t>(bytes.first + numbers.below(bytes.last - bytes.first + 1U));
}

/// Returns whether reading takes longer and longer, as with grammars that can read a text in more and more ways.
bool is_too_ambiguous(ItemSets& sets) {
  Numbers numbers;
  std::array<std::uint64_t, 4> quarters{};
  SetId set = sets.start();
  for (std::size_t i = 0; i < kTrialBytes; ++i) {
    if (sets.items(set).empty()) set = sets.start();
    if (sets.items(set).empty()) break;  // the grammar has only the empty text
    std::uint64_t& quarter = quarters[i * quarters.size() / kTrialBytes];
    const std::uint64_t before = sets.work();
    const SetId next = sets.next(set, some_byte(sets, set, numbers));
    set = next == ItemSets::kNothing ? sets.start() : next;  // in free text not every byte may follow
    quarter += sets.work() - before;
    if (quarter > kMaxQuarterWork) return true;
  }
  return quarters.back() > kMinQuarterWork && quarters.back() > kMaxGrowth * quarters.front();
}

/// Returns a token of the mask: searches from word `first` on, and then from the beginning.
TokenId some_token(std::span<const std::uint32_t> mask, std::size_t first) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t word = (first + i) % mask.size();
    if (mask[word] != 0) return static_cast<TokenId>(word * 32) + std::countr_zero(mask[word]);
  }
  return -1;
}

bool masks_take_too_long(ItemSets& sets, TokenMasks& masks, const Vocabulary& vocabulary) {
  const std::uint64_t before = sets.work();
  Numbers numbers;
  SetId set = sets.start();
  for (std::size_t i = 0; i < kTrialTokens; ++i) {
    const auto mask = masks.mask(set, kMaxMaskWork);
    if (mask.empty() || sets.work() - before > kMaxMaskWork) return true;
    const TokenId token = some_token(mask, numbers.below(mask.size()));
    if (token < 0) break;
    for (const char c : vocabulary.bytes(token)) set = sets.next(set, static_cast<std::uint8_t>(c));
    if (vocabulary.is_end(token)) set = sets.start();
  }
  return false;
}

}  // namespace

std::optional<std::string> problem_of(ItemSets& sets, TokenMasks& masks, const Vocabulary& vocabulary) {
  if (is_too_ambiguous(sets))
    return "the grammar is too ambiguous: the work for each byte grows with the length of the text";
  if (masks_take_too_long(sets, masks, vocabulary))
    return "the grammar is too ambiguous: its masks take too long to make";
  return std::nullopt;
}

}  // namespace pagoda::grammar
