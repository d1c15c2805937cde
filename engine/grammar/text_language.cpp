#include "engine/grammar/text_language.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "engine/grammar/json_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
std::optional<TextLanguage> TextLanguage::from_expression(const Expr& expression, Matching matching,
                                                          LanguageBudget& budget) {
  auto automaton = determinized(*expression, matching, true, budget);
  if (!automaton) return std::nullopt;
  TextLanguage made;
  made.begins_ = std::move(automaton->begins);
  made.next_ = std::move(automaton->next);
  for (const bool accepts : automaton->accepts) made.states_.push_back({.accepts = accepts});
  made.find_dead();
  return made.simplified(budget);
}

TextLanguage TextLanguage::of_any_text() {
  constexpr std::uint32_t kDead = 1;
  const CharacterRanges all = complement({});
  TextLanguage made;
  made.states_ = {{.accepts = true}, {.is_dead = true}};
  made.begins_ = {0};
  made.next_ = {kDead};
  for (const auto [first, last] : all) {
    made.begins_.insert(made.begins_.end(), {first, static_cast<char32_t>(last + 1)});
    made.next_.insert(made.next_.end(), {kStart, kDead});
  }
  made.next_.insert(made.next_.end(), made.begins_.size(), kDead);
  return made;
}

std::optional<TextLanguage> TextLanguage::of_texts(const std::vector<std::string>& texts, LanguageBudget& budget) {
  std::vector<Expr> all;
  for (const std::string& text : texts) all.push_back(literal(text));
  return from_expression(choice(std::move(all)), Matching::whole, budget);
}

std::optional<TextLanguage> TextLanguage::of_multiples(std::uint32_t numerator, std::uint32_t digits,
                                                       LanguageBudget& budget) {
  // States: the start, after "-", after a first 0, nothing may follow; then, by the remainder of the digits read so
  // far, before the point, right after it, and after each digit that follows it.
  enum : std::uint32_t { kBegin, kMinus, kZero, kOver, kFirst };
  const std::size_t num_states = kFirst + std::size_t{numerator} * (digits + 2);
  if (num_states > kMaxLanguageStates || !budget.take(16 * num_states)) return std::nullopt;
  TextLanguage made;
  made.begins_ = {0, '-', '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
  const auto interval_of_digit = [](std::uint32_t digit) { return 4 + digit; };
  constexpr std::size_t kMinusInterval = 1;
  constexpr std::size_t kPointInterval = 2;
  const auto state_of = [&](std::uint32_t place, std::uint32_t remainder) {
    return kFirst + place * numerator + remainder % numerator;
  };
  made.states_.resize(num_states);
  made.next_.assign(num_states * made.begins_.size(), kOver);
  const auto lead = [&](std::uint32_t from, std::size_t interval, std::uint32_t to) {
    made.next_[from * made.begins_.size() + interval] = to;
  };
  lead(kBegin, kMinusInterval, kMinus);
  for (const std::uint32_t from : {std::uint32_t{kBegin}, std::uint32_t{kMinus}}) {
    lead(from, interval_of_digit(0), kZero);
    for (std::uint32_t digit = 1; digit <= 9; ++digit) lead(from, interval_of_digit(digit), state_of(0, digit));
  }
  made.states_[kZero].accepts = true;
  if (digits > 0) lead(kZero, kPointInterval, state_of(1, 0));
  for (std::uint32_t place = 0; place < digits + 2; ++place) {
    std::uint32_t scale = 1;  // for the digits that are missing
    for (std::uint32_t i = place == 0 ? 0 : place - 1; i < digits; ++i) scale = scale * 10 % numerator;
    for (std::uint32_t remainder = 0; remainder < numerator; ++remainder) {
      const std::uint32_t from = state_of(place, remainder);
      made.states_[from].accepts = place != 1 && remainder * scale % numerator == 0;
      if (place == 0 && digits > 0) lead(from, kPointInterval, state_of(1, remainder));
      if (place == digits + 1) continue;
      for (std::uint32_t digit = 0; digit <= 9; ++digit) {
        lead(from, interval_of_digit(digit), state_of(place == 0 ? 0 : place + 1, remainder * 10 + digit));
      }
    }
  }
  return made.minimal(budget);
}

std::optional<TextLanguage> TextLanguage::product(const TextLanguage& other, bool is_excluded,
                                                  LanguageBudget& budget) const {
  if (is_excluded && (other.min_length_ > 0 || other.max_length_ != kUnbounded)) return std::nullopt;
  TextLanguage made;
  made.min_length_ = std::max(min_length_, other.min_length_);
  made.max_length_ = max_length_ == kUnbounded         ? other.max_length_
                     : other.max_length_ == kUnbounded ? max_length_
                                                       : std::min(max_length_, other.max_length_);
  std::ranges::set_union(begins_, other.begins_, std::back_inserter(made.begins_));
  std::vector<std::pair<std::size_t, std::size_t>> intervals;
  for (const char32_t begin : made.begins_) intervals.emplace_back(interval_of(begin), other.interval_of(begin));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known{{{kStart, kStart}, 0}};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs{{kStart, kStart}};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [a, b] = pairs[i];
    if (pairs.size() > kMaxLanguageStates || !budget.take(intervals.size())) return std::nullopt;
    made.states_.push_back({.accepts = states_[a].accepts && other.states_[b].accepts != is_excluded});
    const bool is_over = states_[a].is_dead || (!is_excluded && other.states_[b].is_dead);
    for (const auto& [of_a, of_b] : intervals) {
      // A dead state stays where it is: one such state is enough.
      const std::pair target = is_over ? pairs[i] : std::pair(next(a, of_a), other.next(b, of_b));
      const auto [place, is_new] = known.try_emplace(target, static_cast<std::uint32_t>(pairs.size()));
      if (is_new) pairs.push_back(target);
      made.next_.push_back(place->second);
    }
  }
  made.find_dead();
  return made.simplified(budget);
}

std::optional<TextLanguage> TextLanguage::minimal(LanguageBudget& budget) const {
  // Moore's algorithm: states are alike until their characters lead to states that are not.
  std::vector<std::uint32_t> group_of(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) group_of[i] = states_[i].accepts ? 1 : 0;
  std::size_t num_groups = 0;
  while (true) {
    if (!budget.take(next_.size())) return std::nullopt;
    std::map<std::vector<std::uint32_t>, std::uint32_t> groups;
    std::vector<std::uint32_t> refined;
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      std::vector<std::uint32_t> key{group_of[i]};
      for (std::size_t k = 0; k < begins_.size(); ++k) key.push_back(group_of[next(i, k)]);
      refined.push_back(groups.try_emplace(std::move(key), static_cast<std::uint32_t>(groups.size())).first->second);
    }
    group_of = std::move(refined);
    if (groups.size() == num_groups) break;
    num_groups = groups.size();
  }
  TextLanguage made;
  made.begins_ = begins_;
  made.min_length_ = min_length_;
  made.max_length_ = max_length_;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (group_of[i] != made.states_.size()) continue;  // not the first of its group
    made.states_.push_back({.accepts = states_[i].accepts});
    for (std::size_t k = 0; k < begins_.size(); ++k) made.next_.push_back(group_of[next(i, k)]);
  }
  made.find_dead();
  return made;
}

std::optional<TextLanguage> TextLanguage::of_length(std::int32_t min, std::int32_t max, LanguageBudget& budget) const {
  TextLanguage made = *this;
  made.min_length_ = std::max(min_length_, min);
  if (max != kUnbounded) made.max_length_ = max_length_ == kUnbounded ? max : std::min(max_length_, max);
  return made.simplified(budget);
}

TextLanguage TextLanguage::shortest() const {
  TextLanguage made = *this;
  const auto dead = static_cast<std::uint32_t>(states_.size());
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i].accepts)
      std::fill_n(made.next_.begin() + static_cast<std::ptrdiff_t>(i * begins_.size()), begins_.size(), dead);
  }
  made.states_.push_back({});
  made.next_.insert(made.next_.end(), begins_.size(), dead);
  made.find_dead();
  return made;
}

std::vector<std::int32_t> TextLanguage::distances() const {
  std::vector<std::vector<std::uint32_t>> before(states_.size());
  std::vector<std::int32_t> result(states_.size(), -1);
  std::deque<std::uint32_t> pending;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    for (std::size_t k = 0; k < begins_.size(); ++k) before[next(i, k)].push_back(i);
    if (!states_[i].accepts) continue;
    result[i] = 0;
    pending.push_back(i);
  }
  while (!pending.empty()) {
    const std::uint32_t state = pending.front();
    pending.pop_front();
    for (const std::uint32_t from : before[state]) {
      if (result[from] >= 0) continue;
      result[from] = result[state] + 1;
      pending.push_back(from);
    }
  }
  return result;
}

/// Returns whether every text that is accepted from any state can be one character longer. Then, by induction, a state
/// that is n characters away from an accepting state has texts of n characters, and of every greater length.
bool TextLanguage::can_be_prolonged() const {
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].accepts) continue;
    bool goes_on = false;
    for (std::size_t k = 0; k < begins_.size() && !goes_on; ++k) goes_on = states_[next(i, k)].accepts;
    if (!goes_on) return false;
  }
  return true;
}

std::optional<TextLanguage> TextLanguage::of_lengths(std::int32_t min, std::int32_t max) {
  const std::int32_t last = max == kUnbounded ? min : max;
  if (last >= static_cast<std::int32_t>(kMaxLanguageStates)) return std::nullopt;
  TextLanguage made;
  made.begins_ = {0};
  for (std::int32_t i = 0; i <= last; ++i) {
    made.states_.push_back({.accepts = i >= min});
    made.next_.push_back(static_cast<std::uint32_t>(i == last && max == kUnbounded ? i : i + 1));
  }
  if (max != kUnbounded) {
    made.states_.push_back({});
    made.next_.push_back(static_cast<std::uint32_t>(last + 1));
  }
  made.find_dead();
  return made;
}

std::optional<TextLanguage> TextLanguage::simplified(LanguageBudget& budget) const {
  constexpr std::size_t kFewStates = 256;
  constexpr std::size_t kFewEdges = 8'192;
  TextLanguage made = *this;
  if (states_.size() > 1 && states_.size() <= kFewStates && next_.size() <= kFewEdges) {
    auto few = minimal(budget);
    if (!few) return std::nullopt;
    made = std::move(*few);
  }
  if (made.min_length_ == 0 && made.max_length_ == kUnbounded) return made;
  const std::int32_t shortest = made.is_empty() ? 0 : made.distances()[kStart];
  const bool none_fits = made.max_length_ != kUnbounded && std::max(made.min_length_, shortest) > made.max_length_;
  if (made.is_empty() || none_fits) return of_texts({}, budget);
  if (made.min_length_ <= shortest) made.min_length_ = 0;
  if (made.min_length_ == 0 || made.can_be_prolonged()) return made;
  // The lengths must become a part of the automaton then.
  const auto lengths = of_lengths(made.min_length_, made.max_length_);
  made.min_length_ = 0;
  made.max_length_ = kUnbounded;
  return lengths ? made.product(*lengths, false, budget) : std::nullopt;
}

std::size_t TextLanguage::interval_of(char32_t character) const {
  return interval_in(begins_, character);
}

void TextLanguage::find_dead() {
  std::vector<std::vector<std::uint32_t>> before(states_.size());
  std::vector<std::uint32_t> pending;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    states_[i].is_dead = !states_[i].accepts;
    if (states_[i].accepts) pending.push_back(i);
    for (std::size_t k = 0; k < begins_.size(); ++k) {
      auto& list = before[next(i, k)];
      if (list.empty() || list.back() != i) list.push_back(i);
    }
  }
  while (!pending.empty()) {
    const std::uint32_t state = pending.back();
    pending.pop_back();
    for (const std::uint32_t from : before[state]) {
      if (!std::exchange(states_[from].is_dead, false)) continue;
      pending.push_back(from);
    }
  }
}

bool TextLanguage::contains(std::string_view text) const {
  std::uint32_t state = kStart;
  std::int32_t length = 0;
  for (std::size_t i = 0; i < text.size(); ++length) state = next(state, interval_of(text::next_character(text, i)));
  return states_[state].accepts && length >= min_length_ && (max_length_ == kUnbounded || length <= max_length_);
}

Expr TextLanguage::expression(JsonRules* json, std::int32_t max_tokens) const {
  if (is_empty()) return nothing();
  // Equal sets of characters are one expression, so that their bytes are found once.
  std::map<std::vector<std::size_t>, CharacterAutomaton::Edge> known;  // by their intervals
  const auto edge_of = [&](const std::vector<std::size_t>& intervals) {
    const auto [place, is_new] = known.try_emplace(intervals);
    if (!is_new) return place->second;
    CharacterRanges ranges;
    for (const std::size_t i : intervals) {
      ranges.push_back({begins_[i], i + 1 < begins_.size() ? begins_[i + 1] - 1 : 0x10FFFF});
    }
    ranges = normalized(std::move(ranges));
    CharacterRanges plain = json != nullptr ? JsonRules::plain(ranges) : ranges;
    if (!plain.empty()) place->second.characters = characters(std::move(plain));
    if (json != nullptr) place->second.escapes = json->escapes(ranges);
    return place->second;
  };
  std::vector<std::uint32_t> place_of(states_.size());
  std::uint32_t num_live = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) place_of[i] = states_[i].is_dead ? 0 : num_live++;
  CharacterAutomaton made{.states = {}, .min_length = min_length_, .max_length = max_length_, .max_tokens = max_tokens};
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i].is_dead) continue;
    std::map<std::uint32_t, std::vector<std::size_t>> targets;
    for (std::size_t k = 0; k < begins_.size(); ++k) {
      if (!states_[next(i, k)].is_dead) targets[next(i, k)].push_back(k);
    }
    auto& state = made.states.emplace_back();
    state.accepts = states_[i].accepts;
    for (const auto& [target, intervals] : targets) {
      auto edge = edge_of(intervals);
      edge.target = place_of[target];
      if (edge.characters || edge.escapes >= 0) state.edges.push_back(std::move(edge));
    }
  }
  return automaton(std::move(made));
}

}  // namespace pagoda::grammar
