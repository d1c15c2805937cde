#include "engine/scheduling/output_history.hpp"

#include <algorithm>

namespace pagoda::scheduling {
namespace {

constexpr std::size_t kMaxTokens = SpeculationConfig::kMaxHistoryTokens;
constexpr std::size_t kMaxTokensOfOutput = 4096;  ///< the last ones; with more, adding them would take long
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
  output = output.last(std::min(output.size(), kMaxTokensOfOutput));
  const auto [place, is_new] = owned_.try_emplace({spec.user, spec.cache_salt}, Owned{text_of({}, 0), text_of({}, 0)});
  Owned& owned = place->second;
  const std::span<const TokenId> prompt = spec.own_prompt();
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
  const bool is_full =
      2 * tokens.size() >= kMaxTokens || owned.newer.num_outputs >= std::max(1, config_.max_outputs / 2);
  if (is_full) owned.older = std::exchange(owned.newer, text_of({}, 0));
  num_tokens_ += owned.num_tokens();
  make_room();
}

/// The user with the most tokens loses the older half of them first. Beyond kMaxUsers, the user goes whose last output
/// is the oldest.
void OutputHistory::make_room() {
  while (num_tokens_ > kMaxTokens) {
    Owned& largest =
        std::ranges::max_element(owned_, {}, [](const auto& one) { return one.second.num_tokens(); })->second;
    Text& dropped = largest.older.tokens.empty() ? largest.newer : largest.older;
    num_tokens_ -= dropped.tokens.size();
    dropped = text_of({}, 0);
  }
  while (owned_.size() > kMaxUsers) {
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

bool OutputHistory::load(Decoder& in, std::int64_t vocab_size) {
  std::size_t num_owners = 0;
  if (!in.get(version_) || !is_valid_count(version_) || !in.get(num_owners)) return false;
  const auto load_text = [&](Text& text) {
    TokenIds tokens;
    std::int32_t num_outputs = 0;
    if (!in.get(tokens) || !in.get(num_outputs) || num_outputs < 0 || num_outputs > config_.max_outputs) return false;
    num_tokens_ += tokens.size();
    const auto is_token = [&](TokenId token) { return token == kEnd || (token >= 0 && token < vocab_size); };
    if (num_tokens_ > kMaxTokens || !std::ranges::all_of(tokens, is_token)) return false;
    text = text_of(std::move(tokens), num_outputs);
    return true;
  };
  for (; num_owners > 0; --num_owners) {
    Owner owner;
    Owned owned{text_of({}, 0), text_of({}, 0)};
    if (!in.get(owner) || !in.get(owned.last_added) || !load_text(owned.newer) || !load_text(owned.older)) return false;
    if (!owned_.emplace(std::move(owner), std::move(owned)).second) return false;
  }
  return owned_.size() <= kMaxUsers && (config_.has_history() || owned_.empty());
}

}  // namespace pagoda::scheduling
