#include "engine/scheduling/earlier_places.hpp"

#include <algorithm>
#include <bit>

namespace pagoda::scheduling {
namespace {

constexpr std::size_t kMinLists = 64;

}  // namespace

EarlierPlaces::EarlierPlaces(std::int32_t length, std::int32_t first)
    : length_(length), first_(std::max(first, length)), latest_(kMinLists, -1) {}

/// Multiplies by an odd number whose bits are those of the golden ratio, as in Knuth's multiplicative hashing (The Art
/// of Computer Programming 3, 6.4). The high bits are the well-mixed ones.
std::size_t EarlierPlaces::list_of(const JoinedTokens& tokens, std::int32_t place) const {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
  std::uint64_t hash = 0;
  for (std::int32_t i = place - length_; i < place; ++i) {
    hash = (std::rotl(hash, 5) ^ static_cast<std::uint32_t>(tokens[i])) * kFactor;
  }
  return hash >> (64 - std::countr_zero(latest_.size()));
}

void EarlierPlaces::link(const JoinedTokens& tokens, std::int32_t place) {
  std::int32_t& latest = latest_[list_of(tokens, place)];
  previous_[static_cast<std::size_t>(place - first_)] = latest;
  latest = place;
}

void EarlierPlaces::add(const JoinedTokens& tokens, std::int32_t end) {
  std::int32_t place = this->end();
  if (end < place) return;
  previous_.resize(static_cast<std::size_t>(end + 1 - first_));
  // The number of lists follows from the number of places alone, so that those of a loaded state are the same.
  if (previous_.size() > latest_.size()) {
    latest_.assign(std::bit_ceil(previous_.size()), -1);
    place = first_;
  }
  for (; place <= end; ++place) link(tokens, place);
}

std::int32_t EarlierPlaces::latest_like(const JoinedTokens& text) const {
  return text.size() < length_ ? -1 : latest_[list_of(text, text.size())];
}

}  // namespace pagoda::scheduling
