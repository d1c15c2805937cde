#include "engine/scheduling/output_history.hpp"

#include <algorithm>

namespace pagoda::scheduling {
namespace {

constexpr std::size_t kMaxTokens = SpeculationConfig::kMaxHistoryTokens;
constexpr std::size_t kMaxUsers = 256;

}  // namespace

OutputHistory::Text OutputHistory::text_of(TokenIds tokens, std::int32_t num_outputs) const {
  Text text{std::move(tokens), num_outputs, EarlierPlaces(config_.min_match, 0)};
  text.places.add(text.joined(), text.joined().size());
  return text;
}

/// The last tokens of the prompt come first, so that the first tokens of the output are found, too.
void OutputHistory::add(const RequestSpec& spec, std::span<const TokenId> output) {
  if (!config_.has_history() || output.empty()) return;
  output = output.last(std::min(output.size(), kMaxTokens / 4));
  const auto [place, is_new] = owned_.try_emplace({spec.user, spec.cache_salt}, Owned{text_of({}, 0), text_of({}, 0)});
  Owned& owned = place->second;
  const std::span<const TokenId> prompt(*spec.prompt);
  const auto context = prompt.last(std::min(prompt.size(), static_cast<std::size_t>(config_.min_match)));
  num_tokens_ -= owned.num_tokens();
  TokenIds& tokens = owned.newer.tokens;
  tokens.insert(tokens.end(), context.begin(), context.end());
  tokens.insert(tokens.end(), output.begin(), output.end());
  tokens.push_back(kEnd);
  owned.newer.places.add(owned.newer.joined(), owned.newer.joined().size());
  ++owned.newer.num_outputs;
  owned.last_added = ++version_;
  // Half of the outputs stay when the other half is forgotten.
  const bool is_full = 2 * tokens.size() >= kMaxTokens || 2 * owned.newer.num_outputs >= config_.max_outputs;
  if (is_full) owned.older = std::exchange(owned.newer, text_of({}, 0));
  num_tokens_ += owned.num_tokens();
  forget_users();
}

void OutputHistory::forget_users() {
  while (owned_.size() > kMaxUsers || (num_tokens_ > kMaxTokens && owned_.size() > 1)) {
    const auto oldest = std::ranges::min_element(owned_, {}, [](const auto& one) { return one.second.last_added; });
    num_tokens_ -= oldest->second.num_tokens();
    owned_.erase(oldest);
  }
}

OutputHistory::Texts OutputHistory::find(const RequestSpec& spec) const {
  if (owned_.empty()) return {};
  const auto found = owned_.find({spec.user, spec.cache_salt});
  if (found == owned_.end()) return {};
  return {&found->second.newer, &found->second.older};
}

void OutputHistory::save(Encoder& out) const {
  out.put(version_);
  out.put(owned_.size());
  for (const auto& [owner, owned] : owned_) {
    out.put(owner);
    out.put(owned.last_added);
    for (const Text* text : {&owned.newer, &owned.older}) {
      out.put(text->tokens);
      out.put(text->num_outputs);
    }
  }
}

bool OutputHistory::load(Decoder& in) {
  std::size_t num_owners = 0;
  if (!in.get(version_) || !in.get(num_owners)) return false;
  for (; num_owners > 0; --num_owners) {
    Owner owner;
    std::int64_t last_added = 0;
    TokenIds newer;
    TokenIds older;
    std::int32_t num_newer = 0;
    std::int32_t num_older = 0;
    if (!in.get(owner) || !in.get(last_added) || !in.get(newer) || !in.get(num_newer) || !in.get(older) ||
        !in.get(num_older) || num_newer < 0 || num_older < 0) {
      return false;
    }
    num_tokens_ += newer.size() + older.size();
    if (num_tokens_ > 2 * kMaxTokens) return false;
    Owned owned{text_of(std::move(newer), num_newer), text_of(std::move(older), num_older), last_added};
    owned_.insert_or_assign(std::move(owner), std::move(owned));
  }
  return config_.has_history() || owned_.empty();
}

}  // namespace pagoda::scheduling
