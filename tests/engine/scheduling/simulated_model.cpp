#include "tests/engine/scheduling/simulated_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "engine/sampling/beam_search.hpp"
#include "tests/engine/scheduling/simulated_grammar.hpp"

namespace pagoda::test {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15U + (h << 6) + (h >> 2);
  h *= 0xFF51AFD7ED558CCDU;
  return h ^ (h >> 29);
}

/// Returns the generated tokens of a sequence of a request with a grammar.
TokenIds output_of(const RequestSpec& spec, const TokenIds& tokens) {
  return {tokens.begin() + std::ssize(*spec.prompt), tokens.end()};
}

void keep_longest(TokenIds& tokens) {
  const auto size_of = [](TokenId token) { return simulated_text(token).size(); };
  const std::size_t longest = size_of(*std::ranges::max_element(tokens, {}, size_of));
  std::erase_if(tokens, [&](TokenId token) { return size_of(token) < longest; });
}

/// Returns the tokens that a request's grammar and budget allow; empty: any.
TokenIds allowed_tokens(const RequestSpec& spec, const TokenIds& tokens) {
  const auto forced = forced_token(spec, tokens);
  if (!spec.grammar) return forced ? TokenIds{*forced} : TokenIds{};
  TokenIds choices = simulated_choices(spec.grammar, output_of(spec, tokens));
  if (forced && std::ranges::binary_search(choices, *forced)) return {*forced};
  return choices;
}

}  // namespace

std::optional<TokenId> forced_token(const RequestSpec& spec, const TokenIds& tokens) {
  if (!spec.sampling.thinking_token_budget) return std::nullopt;
  const auto prompt_len = std::ssize(*spec.prompt);
  std::int64_t thought = -1;  // number of tokens; -1: it does not think
  bool has_ended = false;
  const std::int64_t first = spec.num_virtual_tokens();
  for (std::int64_t i = first; i < std::ssize(tokens); ++i) {
    const TokenId token = tokens[static_cast<std::size_t>(i)];
    const bool ends = token == 11 && i > first && tokens[static_cast<std::size_t>(i - 1)] == 9;
    const std::int64_t place = i - prompt_len;  // position in the output
    if (place < 0) {
      if (token == 7 && place >= -3) thought = 0;
      if (ends) thought = -1;
      continue;
    }
    if (thought >= 0) {
      ++thought;
      // A mark must be within the output, not partly in the prompt.
      if (ends && thought > 1) has_ended = true;
    } else if (token == 7 && place < 9) {
      thought = 0;
    }
  }
  const std::int64_t over = thought - *spec.sampling.thinking_token_budget;
  if (has_ended || thought < 0 || over < 0 || over >= 3) return std::nullopt;
  return kThinking.close[static_cast<std::size_t>(over)];
}

bool SimulatedModel::has_stop(const RequestSpec& spec) const {
  return static_cast<double>(mix(spec.seed, 99) % 1000) < config_.stop_chance * 1000;
}

bool SimulatedModel::stops(const RequestSpec& spec, TokenId token) const {
  return has_stop(spec) && token % 12 == 5;
}

TokenId SimulatedModel::next_token(const RequestSpec& spec, std::int32_t index, const TokenIds& tokens) const {
  std::uint64_t h = mix(spec.seed, static_cast<std::uint64_t>(index) + 1);
  for (const TokenId t : tokens) h = mix(h, static_cast<std::uint64_t>(t) + 7);
  const bool wants_end = static_cast<double>(h % 10000) < config_.eos_chance * 10000;
  if (TokenIds choices = allowed_tokens(spec, tokens); spec.grammar || !choices.empty()) {
    const bool may_end = !choices.empty() && choices.front() == kEos;
    if (choices.empty() || (may_end && (wants_end || choices.size() == 1))) return kEos;
    if (spec.seed / 3 % 2 == 0 && h / 10000 % 8 != 0)
      keep_longest(choices);  // as a model that has learned the usual tokens of texts
    const std::size_t first = choices.front() == kEos ? 1 : 0;
    return choices[first + (h >> 20) % (choices.size() - first)];
  }
  if (wants_end) return kEos;
  if (static_cast<double>(h / 10000 % 1000) < config_.echo_chance * 1000) {
    const auto before = std::find(tokens.rbegin() + 1, tokens.rend(), tokens.back());
    if (before != tokens.rend()) return *(before - 1);
  }
  return 1 + static_cast<TokenId>((h >> 20) % (kVocab - 1));
}

std::vector<std::pair<TokenId, float>> SimulatedModel::beam_candidates_after(const RequestSpec& spec,
                                                                             const TokenIds& tokens) const {
  std::uint64_t h = mix(spec.seed, 99);
  for (const TokenId t : tokens) h = mix(h, static_cast<std::uint64_t>(t) + 7);
  std::vector<std::pair<TokenId, float>> candidates;
  for (TokenId token = 0; token < kVocab; ++token) {
    const float chance = static_cast<float>(1 + mix(h, static_cast<std::uint64_t>(token)) % 1000) / 1001.0F;
    candidates.emplace_back(token, std::log(chance) * 4.0F);
  }
  if (const TokenIds choices = allowed_tokens(spec, tokens); spec.grammar || !choices.empty()) {
    for (auto& [token, logprob] : candidates) {
      if (!std::ranges::binary_search(choices, token)) logprob = -std::numeric_limits<float>::infinity();
    }
  }
  std::ranges::sort(candidates, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  candidates.resize(static_cast<std::size_t>(beam_candidates(spec.sampling.num_sequences(), 1)));
  return candidates;
}

std::vector<TokenIds> SimulatedModel::right_beams(const RequestSpec& spec) const {
  BeamSearch search({.width = spec.sampling.num_sequences(),
                     .max_new_tokens = spec.sampling.max_tokens,
                     .length_penalty = spec.sampling.length_penalty,
                     .early_stopping = spec.sampling.early_stopping,
                     .ending_tokens = {kEos}});
  while (!search.done()) {
    std::vector<BeamCandidate> candidates;
    for (std::size_t i = 0; i < search.running().size(); ++i) {
      TokenIds tokens = *spec.prompt;
      const TokenIds generated = search.tokens(search.running()[i].node);
      tokens.insert(tokens.end(), generated.begin(), generated.end());
      for (const auto& [token, logprob] : beam_candidates_after(spec, tokens)) {
        candidates.push_back({static_cast<std::int32_t>(i), token, logprob});
      }
    }
    search.step(candidates);
  }
  std::vector<TokenIds> best;
  const std::int64_t num_found = std::ssize(search.hypotheses());  // with a grammar there may be fewer
  for (std::int64_t i = 0; i < std::min(spec.sampling.n, num_found); ++i) {
    best.push_back(search.tokens(search.hypotheses()[static_cast<std::size_t>(i)].node));
  }
  return best;
}

TokenIds SimulatedModel::right_answer(const RequestSpec& spec, std::int32_t index) const {
  TokenIds tokens = *spec.prompt;
  TokenIds output;
  while (static_cast<std::int64_t>(output.size()) < spec.sampling.max_tokens) {
    output.push_back(next_token(spec, index, tokens));
    tokens.push_back(output.back());
    if (output.back() == kEos || stops(spec, output.back())) break;
  }
  return output;
}

}  // namespace pagoda::test
