#include "engine/scheduling/sequence_matchers.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::scheduling {

SequenceMatchers::Place& SequenceMatchers::place_of(SequenceId sequence, std::span<const TokenId> output) {
  const auto found = places_.find(sequence);
  const auto begins_with = [&](const TokenIds& tokens) {
    return tokens.size() <= output.size() && std::ranges::equal(tokens, output.first(tokens.size()));
  };
  if (found != places_.end() && begins_with(found->second.tokens)) return found->second;
  return places_.insert_or_assign(sequence, Place{grammar::Matcher(grammar_), {}}).first->second;
}

void SequenceMatchers::fill_mask(SequenceId sequence, std::span<const TokenId> output, std::span<std::uint32_t> mask) {
  Place& place = place_of(sequence, output);
  while (place.tokens.size() < output.size()) {
    const TokenId token = output[place.tokens.size()];
    if (!place.matcher.accept(token)) break;
    place.tokens.push_back(token);
  }
  if (place.tokens.size() == output.size() && !place.matcher.has_ended()) {
    place.matcher.fill_mask(mask);
  } else {
    std::ranges::fill(mask, 0U);
  }
}

void SequenceMatchers::fork(SequenceId parent, SequenceId child) {
  const auto found = places_.find(parent);
  if (found == places_.end()) return;
  places_.insert_or_assign(child, Place{found->second.matcher.fork(), found->second.tokens});
}

}  // namespace pagoda::scheduling
