#include "io/model_files/special_tokens.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::io {
namespace {

using Tokens = std::vector<text::AddedToken>;

Tokens::const_iterator find_content(const Tokens& tokens, const std::string& content) {
  return std::ranges::find(tokens, content, &text::AddedToken::content);
}

Tokens collect_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                      const text::TokenModel& model) {
  Tokens tokens = config.added_tokens;
  TokenId next_id = model.end_id();
  for (const text::AddedToken& token : tokens) next_id = std::max(next_id, token.id + 1);
  const auto add = [&](text::AddedToken token) {
    if (token.content.empty() || find_content(tokens, token.content) != tokens.end()) return;
    const auto known = model.find(token.content);
    token.id = known ? *known : next_id++;
    tokens.push_back(std::move(token));
  };
  for (const auto& [key, token] : config.special_tokens) add(token);
  for (const text::AddedToken& token : defaults.tokens) add(token);
  std::ranges::stable_sort(tokens, {}, &text::AddedToken::id);
  return tokens;
}

}  // namespace

void add_special_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                        const text::TokenModel& model, text::TokenizerSpec& spec) {
  spec.added_tokens = collect_tokens(config, defaults, model);
  text::TemplateSpec pieces;
  const auto add_if = [&](bool wanted, const char* key, const std::string& otherwise) {
    const text::AddedToken* named = config.special_token(key);
    const auto token = find_content(spec.added_tokens, named != nullptr ? named->content : otherwise);
    if (wanted && token != spec.added_tokens.end()) pieces.push_back({false, {token->id}});
  };
  add_if(config.add_bos_token.value_or(defaults.add_bos_token), "bos_token", defaults.bos_token);
  pieces.push_back({true, {}});
  add_if(config.add_eos_token.value_or(false), "eos_token", defaults.eos_token);
  if (pieces.size() > 1) spec.post_processors.push_back(std::move(pieces));
}

}  // namespace pagoda::io
