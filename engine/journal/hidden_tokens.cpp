#include "engine/journal/hidden_tokens.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/memory/block_hash.hpp"

namespace pagoda::journal {

SharedSpec BlankTokens::blank(const RequestSpec& spec) {
  auto blank = std::make_shared<RequestSpec>(spec);
  blank->prompt = std::make_shared<const TokenIds>(spec.prompt->size(), 0);
  blank->cache_salt.clear();
  blank->sampling.stop.clear();
  blank->sampling.logit_bias.clear();
  for (const std::int64_t id : spec.sampling.stop_token_ids) endings_.insert(static_cast<TokenId>(id));
  return blank;
}

StepResult BlankTokens::blank(StepResult result) const {
  for (TokenReport& report : result.samples) blank(report);
  for (TokenReport& report : result.prompt_logprobs) {
    report.token = 0;
    for (auto& [token, logprob] : report.top) token = 0;
  }
  return result;
}

/// Between two endings there is room for as many others as there were.
void BlankTokens::blank(TokenReport& report) const {
  std::vector<TokenId*> tokens{&report.token};
  for (auto& [token, logprob] : report.top) tokens.push_back(&token);
  std::ranges::stable_sort(tokens, {}, [](const TokenId* token) { return *token; });
  TokenId last = -1;  // that was seen
  TokenId stand_in = -1;
  for (TokenId* token : tokens) {
    if (*token != last) {
      last = *token;
      const auto above = endings_.upper_bound(last);
      const TokenId below = above == endings_.begin() ? -1 : *std::prev(above);
      stand_in = below == last ? last : std::max(below, stand_in) + 1;
    }
    *token = stand_in;
  }
}

TokenId HashedTokens::hash(std::int32_t position, TokenId token) const {
  memory::SipHash128 hash(key_);
  hash.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(position)) << 32U | static_cast<std::uint32_t>(token));
  return static_cast<TokenId>(hash.finish().low & 0x7fffffffU);
}

SharedTokens HashedTokens::hash(const SharedTokens& tokens) {
  const auto found = offered_.find(tokens.get());
  if (found != offered_.end()) return offered_now_.insert(*found).first->second.second;
  TokenIds hashed;
  hashed.reserve(tokens->size());
  for (std::size_t i = 0; i < tokens->size(); ++i) hashed.push_back(hash(static_cast<std::int32_t>(i), (*tokens)[i]));
  const auto entry = std::pair(tokens, std::make_shared<const TokenIds>(std::move(hashed)));
  return offered_now_.emplace(tokens.get(), entry).first->second.second;
}

PlanStep HashedTokens::hash(PlanStep plan, const memory::BlockSpaceManager& blocks) {
  for (AdmissionCandidate& candidate : plan.waiting) {
    candidate.tokens = hash(candidate.tokens);
    if (candidate.cache_salt.empty()) continue;
    memory::BlockHash salt = memory::root_hash(key_, candidate.cache_salt, 0);
    candidate.cache_salt = std::to_string(salt.low) + std::to_string(salt.high);
  }
  offered_ = std::exchange(offered_now_, {});
  // Where each sequence's next token stands: a child begins with what its parent has before this plan.
  std::unordered_map<SequenceId, std::int32_t> ends;
  const auto end_of = [&](SequenceId sequence) -> std::int32_t& {
    return ends.try_emplace(sequence, blocks.num_known_tokens(sequence)).first->second;
  };
  for (const Fork& fork : plan.forks) ends[fork.child] = end_of(fork.parent);
  for (SampledToken& sampled : plan.sampled) sampled.token = hash(end_of(sampled.sequence)++, sampled.token);
  return plan;
}

}  // namespace pagoda::journal
