#include "engine/journal/hidden_tokens.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/request/ending_tokens.hpp"

namespace pagoda::journal {
namespace {

/// Returns progress with as many tokens as `progress` has, but without their content.
std::shared_ptr<const RequestProgress> blank_progress(const RequestProgress& progress) {
  auto blank = std::make_shared<RequestProgress>(progress);
  for (RequestProgress::Sequence& sequence : blank->sequences) {
    SequenceResult& result = sequence.result;
    result.text.clear();
    result.stop_reason = {};
    result.token_ids.assign(result.token_ids.size(), 0);
    result.text_ends.assign(result.text_ends.size(), 0);
    if (result.logprobs) result.logprobs->blank();
    if (result.cumulative_logprob) result.cumulative_logprob = 0;
  }
  blank->prompt_logprobs.blank();
  return blank;
}

}  // namespace

SharedSpec blank(const RequestSpec& spec) {
  auto blank = std::make_shared<RequestSpec>(spec);
  blank->prompt = std::make_shared<const TokenIds>(spec.prompt->size(), 0);
  blank->cache_salt.clear();
  blank->sampling.stop.clear();
  blank->sampling.answer_marks.reset();
  blank->sampling.logit_bias.clear();
  blank->sampling.bad_words.clear();
  blank->bad_words.clear();
  blank->sampling.allowed_token_ids.reset();
  if (auto& ids = blank->sampling.logprob_token_ids) ids->assign(ids->size(), 0);
  // The tokens decide where thinking ends, so the thinking budget is left out. Rows that may have a mask are planned
  // like rows of a grammar.
  const bool has_masks = spec.sampling.structured_outputs || spec.sampling.thinking_token_budget;
  if (has_masks) blank->sampling.structured_outputs.emplace();
  blank->sampling.thinking_token_budget.reset();
  blank->grammar = nullptr;
  blank->resume = nullptr;
  if (spec.progress) blank->progress = blank_progress(*spec.progress);
  return blank;
}

void blank(TokenReport& report, const RequestSpec& spec, std::span<const TokenId> eos_token_ids) {
  TokenIds endings = EndingTokens(spec.sampling, eos_token_ids).all();
  std::ranges::sort(endings);
  report.rank = 0;
  if (!spec.sampling.use_beam_search) {
    report.logprob = 0;
    report.top.clear();
  }
  std::vector<TokenId*> tokens{&report.token};
  for (auto& [token, logprob] : report.top) tokens.push_back(&token);
  std::ranges::stable_sort(tokens, {}, [](const TokenId* token) { return *token; });
  // Stand-ins fit between two endings, since the tokens that they replace did.
  TokenId last = -1;
  TokenId stand_in = -1;
  for (TokenId* token : tokens) {
    if (*token != last) {
      last = *token;
      const auto above = std::ranges::upper_bound(endings, last);
      const TokenId below = above == endings.begin() ? -1 : *std::prev(above);
      stand_in = below == last ? last : std::max(below, stand_in) + 1;
    }
    *token = stand_in;
  }
}

TokenId HashedTokens::hash(std::int32_t position, TokenId token) const {
  memory::SipHash128 keys_of_position(key_);
  keys_of_position.add(static_cast<std::uint32_t>(position));
  const memory::BlockHash keys = keys_of_position.finish();
  auto left = static_cast<std::uint32_t>(token) >> 16U;
  auto right = static_cast<std::uint32_t>(token) & 0xffffU;
  for (const std::uint64_t key : {keys.low, keys.low >> 32U, keys.high, keys.high >> 32U}) {
    const std::uint32_t mixed = (right ^ static_cast<std::uint32_t>(key)) * 0x9e3779b1U;
    left ^= (mixed ^ mixed >> 15U) >> 7U & 0xffffU;
    std::swap(left, right);
  }
  return static_cast<TokenId>(left << 16U | right);
}

SharedTokens HashedTokens::hash(const SharedTokens& tokens) const {
  auto hashed = std::make_shared<TokenIds>();
  hashed->reserve(tokens->size());
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    hashed->push_back(hash(static_cast<std::int32_t>(i), (*tokens)[i]));
  }
  return hashed;
}

MemoryRequest HashedTokens::hash(MemoryRequest plan, const memory::BlockSpaceManager& blocks) {
  std::map<SequenceId, std::pair<SharedTokens, SharedTokens>> offered;
  for (AdmissionCandidate& candidate : plan.waiting) {
    const auto before = offered_.find(candidate.sequence);
    const bool is_known = before != offered_.end() && before->second.first == candidate.tokens;
    const SharedTokens hashed = is_known ? before->second.second : hash(candidate.tokens);
    offered.emplace(candidate.sequence, std::pair(candidate.tokens, hashed));
    candidate.tokens = hashed;
    if (candidate.cache_salt.empty()) continue;
    const memory::BlockHash salt = memory::root_hash(key_, candidate.cache_salt, 0);
    candidate.cache_salt = std::to_string(salt.low) + "-" + std::to_string(salt.high);
  }
  offered_ = std::move(offered);
  // The position of each sequence's next token. A child begins with the tokens that its parent has before this plan.
  std::map<SequenceId, std::int32_t> ends;
  const auto end_of = [&](SequenceId sequence) -> std::int32_t& {
    return ends.try_emplace(sequence, blocks.num_known_tokens(sequence)).first->second;
  };
  for (const Fork& fork : plan.forks) {
    const std::int32_t end = end_of(fork.parent);
    ends[fork.child] = end;
  }
  for (SampledToken& sampled : plan.sampled) sampled.token = hash(end_of(sampled.sequence)++, sampled.token);
  return plan;
}

}  // namespace pagoda::journal
