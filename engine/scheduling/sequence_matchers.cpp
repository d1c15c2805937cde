#include "engine/scheduling/sequence_matchers.hpp"

#include <algorithm>

namespace pagoda::scheduling {

bool SequenceMatchers::Place::is_on_the_way_to(std::span<const TokenId> output) const {
  return tokens.size() <= output.size() && std::ranges::equal(tokens, output.first(tokens.size()));
}

void SequenceMatchers::Place::fill_mask(std::span<const TokenId> output, std::span<std::uint32_t> mask) {
  while (tokens.size() < output.size()) {
    const TokenId token = output[tokens.size()];
    if (!matcher.accept(token)) break;
    tokens.push_back(token);
  }
  if (tokens.size() == output.size() && !matcher.has_ended()) {
    matcher.fill_mask(mask);
  } else {
    std::ranges::fill(mask, 0U);
  }
}

SequenceMatchers::Place& SequenceMatchers::place_of(SequenceId sequence, std::span<const TokenId> output) {
  const auto found = places_.find(sequence);
  if (found != places_.end() && found->second.is_on_the_way_to(output)) return found->second;
  return places_.insert_or_assign(sequence, Place{grammar::Matcher(grammar_, budget_), {}}).first->second;
}

const std::vector<std::uint32_t>* SequenceMatchers::known_mask(SequenceId sequence,
                                                               std::span<const TokenId> output) const {
  const auto found = ahead_.find(sequence);
  if (found == ahead_.end()) return nullptr;
  const auto& [place, masks] = found->second;
  const auto known = masks.find(output.size());
  const bool is_there = known != masks.end() && output.size() <= place.tokens.size() &&
                        std::ranges::equal(output, std::span(place.tokens).first(output.size()));
  return is_there ? &known->second : nullptr;
}

void SequenceMatchers::fill_mask(SequenceId sequence, std::span<const TokenId> output, std::span<std::uint32_t> mask) {
  if (const auto* known = known_mask(sequence, output)) {
    std::ranges::copy(*known, mask.begin());
    auto& masks = ahead_.at(sequence).masks;
    masks.erase(masks.begin(), masks.upper_bound(output.size()));
    return;
  }
  ahead_.erase(sequence);
  place_of(sequence, output).fill_mask(output, mask);
}

void SequenceMatchers::fill_mask_ahead(SequenceId sequence, std::span<const TokenId> output,
                                       std::span<std::uint32_t> mask) {
  if (const auto* known = known_mask(sequence, output)) {
    std::ranges::copy(*known, mask.begin());
    return;
  }
  auto found = ahead_.find(sequence);
  if (found == ahead_.end() || !found->second.place.is_on_the_way_to(output)) {
    const Place& place = place_of(sequence, output);
    found = ahead_.insert_or_assign(sequence, PlaceAhead{{place.matcher.fork(), place.tokens}, {}}).first;
  }
  found->second.place.fill_mask(output, mask);
  found->second.masks.insert_or_assign(output.size(), std::vector<std::uint32_t>(mask.begin(), mask.end()));
}

void SequenceMatchers::fork(SequenceId parent, SequenceId child) {
  const auto found = places_.find(parent);
  if (found == places_.end()) return;
  places_.insert_or_assign(child, Place{found->second.matcher.fork(), found->second.tokens});
}

void SequenceMatchers::forget(SequenceId sequence) {
  places_.erase(sequence);
  ahead_.erase(sequence);
}

}  // namespace pagoda::scheduling
