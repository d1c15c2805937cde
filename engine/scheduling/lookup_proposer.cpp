#include "engine/scheduling/lookup_proposer.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "engine/request/ending_tokens.hpp"
#include "engine/scheduling/sequence_group.hpp"

namespace pagoda::scheduling {
namespace {

/// Maximum number of places that are looked at in a list.
constexpr int kMaxVisited = 8;

/// Returns the index of State::outcomes for drafts of places where `length` tokens agree.
std::uint32_t match_size(std::int32_t length) {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(length))) - 1;
}

/// Shares of right drafts before there are results.
constexpr std::array kFirstShares = {0.3, 0.5, 0.7, 0.85, 0.9, 0.93, 0.93};

JoinedTokens known_tokens(const SequenceGroup& group, const Sequence& sequence) {
  return {*group.spec->prompt, sequence.output};
}

}  // namespace

LookupProposer::LookupProposer(const SpeculationConfig& config, const RequestSpec& spec, const TokenIds& eos_token_ids,
                               const OutputHistory& history)
    : config_(config),
      ending_tokens_(EndingTokens(spec.sampling, eos_token_ids).all()),
      history_(history),
      in_prompt_(config.min_match, spec.num_virtual_tokens() + config.min_match) {
  static_assert(kFirstShares.size() == kMatchSizes);
}

void LookupProposer::propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts,
                             std::int32_t& new_tokens, std::vector<double>& chances) {
  chances.clear();
  sequence.ahead.drafts.clear();
  const JoinedTokens tokens = known_tokens(group, sequence);
  State& state = sequences_[sequence.id];
  const bool is_complete = add_places(group, tokens, state, new_tokens);
  const std::int64_t num_left = std::min(group.max_drafts(sequence), static_cast<std::int64_t>(max_drafts));
  if (!is_complete || num_left <= 0) return;
  // The sample in flight takes the first token of the continuation.
  const std::int64_t skipped = sequence.num_placeholders;
  const std::int64_t max_length = skipped + std::min<std::int64_t>(config_.max_drafts, num_left);
  if (state.num_known != tokens.size() || state.version != history_.version() || state.max_length < max_length) {
    find_continuation(group, tokens, max_length, state);
  }
  const std::int64_t count = std::min(std::ssize(state.continuation), max_length) - skipped;
  if (count <= 0) return;
  sequence.ahead.drafts.assign(state.continuation.begin() + skipped, state.continuation.begin() + skipped + count);
  chances.assign(state.chances.begin() + skipped, state.chances.begin() + skipped + count);
}

bool LookupProposer::add_places(const SequenceGroup& group, const JoinedTokens& tokens, State& state,
                                std::int32_t& new_tokens) {
  const auto add = [&](EarlierPlaces& places, std::int32_t end, std::int32_t& loaded_end) {
    if (loaded_end > 0) places.add(tokens, std::min(end, std::exchange(loaded_end, 0) - 1));
    const std::int32_t until = std::min(end, places.end() - 1 + new_tokens);
    new_tokens -= std::max(0, until - places.end() + 1);
    places.add(tokens, until);
    return places.end() > end;
  };
  if (!state.in_output) state.in_output.emplace(config_.min_match, group.prompt_len());
  // The last place is the one that is looked for.
  return add(in_prompt_, group.prompt_len() - 1, loaded_end_of_prompt_) &&
         add(*state.in_output, tokens.size() - 1, state.loaded_end);
}

void LookupProposer::find_continuation(const SequenceGroup& group, const JoinedTokens& tokens, std::int64_t max_length,
                                       State& state) const {
  state.num_known = tokens.size();
  state.max_length = max_length;
  state.version = history_.version();
  state.continuation.clear();
  state.chances.clear();
  Found found;
  found.num_agreed = config_.min_match;
  find_places(tokens, tokens, *state.in_output, found);
  find_places(tokens, tokens, in_prompt_, found);
  const OutputHistory::Texts earlier_outputs = history_.find(*group.spec);
  std::array<JoinedTokens, earlier_outputs.size()> texts;
  for (std::size_t i = 0; i < texts.size() && earlier_outputs[i] != nullptr; ++i) {
    texts[i] = earlier_outputs[i]->joined();
    find_places(tokens, texts[i], earlier_outputs[i]->places, found);
  }
  if (found.count == 0) return;
  state.match_size = match_size(found.num_agreed);
  const double share_right = state.outcomes[state.match_size].share_right(kFirstShares[state.match_size]);
  double chance = 1;
  while (std::ssize(state.continuation) < max_length) {
    // The text of the sequence itself goes on with the continuation: it may repeat itself.
    const auto next = [&](const Found::Place& place) {
      const std::size_t at = static_cast<std::size_t>(place.position) + state.continuation.size();
      const auto size = static_cast<std::size_t>(place.text->size());
      if (at < size) return (*place.text)[static_cast<std::int32_t>(at)];
      return place.text == &tokens ? state.continuation[at - size] : OutputHistory::kEnd;
    };
    std::array<TokenId, kMaxPlaces> nexts;
    const auto end =
        std::ranges::transform(found.places.begin(), found.places.begin() + found.count, nexts.begin(), next).out;
    TokenId likeliest = OutputHistory::kEnd;
    std::ptrdiff_t most = 0;
    for (auto token = nexts.begin(); end - token > most; ++token) {
      const std::ptrdiff_t count = std::count(token, end, *token);
      if (count > most) {
        likeliest = *token;
        most = count;
      }
    }
    chance *= share_right * static_cast<double>(most) / static_cast<double>(found.count);
    const bool ends =
        likeliest == OutputHistory::kEnd || std::ranges::find(ending_tokens_, likeliest) != ending_tokens_.end();
    if (ends || chance < config_.min_chance) return;
    std::size_t num_kept = 0;
    for (std::size_t i = 0; i < found.count; ++i) {
      if (nexts[i] == likeliest) found.places[num_kept++] = found.places[i];
    }
    found.count = num_kept;
    state.continuation.push_back(likeliest);
    state.chances.push_back(chance);
  }
}

void LookupProposer::find_places(const JoinedTokens& tokens, const JoinedTokens& text, const EarlierPlaces& earlier,
                                 Found& found) const {
  std::int32_t place = earlier.latest_like(tokens);
  for (int visited = 0; place >= 0 && visited < kMaxVisited; place = earlier.before(place), ++visited) {
    if (found.num_agreed == config_.max_match && found.count == kMaxPlaces) return;
    const std::int32_t length = text.num_in_common(place, tokens, config_.max_match);
    if (length < found.num_agreed) continue;
    if (length > found.num_agreed) found.count = 0;
    found.num_agreed = length;
    if (found.count < kMaxPlaces) found.places[found.count++] = {&text, place};
  }
}

void LookupProposer::on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) {
  State& state = sequences_[sequence];
  state.outcomes[state.match_size].add(num_drafts, num_right);
}

void LookupProposer::on_fork(SequenceId parent, SequenceId child) {
  State forked;
  forked.outcomes = sequences_[parent].outcomes;
  sequences_.insert_or_assign(child, std::move(forked));
}

void LookupProposer::save(Encoder& out) const {
  out.put(std::max(in_prompt_.end(), loaded_end_of_prompt_));
  out.put(sequences_.size());
  for (const auto& [id, state] : sequences_) {
    out.put(id);
    out.put(state);
    out.put(state.in_output ? std::max(state.in_output->end(), state.loaded_end) : state.loaded_end);
  }
}

bool LookupProposer::load(Decoder& in) {
  std::size_t count = 0;
  if (!in.get(loaded_end_of_prompt_) || !in.get(count)) return false;
  for (; count > 0; --count) {
    SequenceId id = 0;
    State state;
    if (!in.get(id) || !in.get(state) || !in.get(state.loaded_end) || state.match_size >= kMatchSizes) return false;
    if (!std::ranges::all_of(state.outcomes, &DraftOutcomes::is_valid)) return false;
    sequences_.insert_or_assign(id, std::move(state));
  }
  return true;
}

}  // namespace pagoda::scheduling
