#include "io/model_files/special_tokens.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace pagoda::io {
namespace {

using Tokens = std::vector<text::AddedToken>;

/// Finds tokens by their contents. Models of speech have tens of thousands of added tokens.
class Contents {
 public:
  explicit Contents(const Tokens& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) add(tokens[i].content, i);
  }

  /// Adds a token, unless there is one with this content.
  void add(const std::string& content, std::size_t index) { indices_.emplace(content, index); }
  /// Returns the index of the first token with this content.
  std::optional<std::size_t> find(const std::string& content) const {
    const auto found = indices_.find(content);
    return found == indices_.end() ? std::nullopt : std::optional(found->second);
  }
  bool contains(const std::string& content) const { return indices_.contains(content); }

 private:
  std::unordered_map<std::string, std::size_t> indices_;
};

Tokens collect_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                      const text::TokenModel& model) {
  Tokens tokens = config.added_tokens;
  TokenId next_id = model.end_id();
  for (const text::AddedToken& token : tokens) next_id = std::max(next_id, token.id + 1);
  Contents contents(tokens);
  const auto add = [&](text::AddedToken token) {
    if (token.content.empty() || contents.contains(token.content)) return;
    contents.add(token.content, tokens.size());
    const auto known = model.find(token.content);
    token.id = known ? *known : next_id++;
    tokens.push_back(std::move(token));
  };
  for (const auto& [key, token] : config.special_tokens) add(token);
  for (const text::AddedToken& token : defaults.tokens) add(token);
  std::ranges::stable_sort(tokens, {}, &text::AddedToken::id);
  return tokens;
}

bool same_flags(const text::AddedToken& one, text::AddedToken other) {
  other.id = one.id;
  return one == other;
}

/// Returns the tokens that transformers adds to a tokenizer.json, in its order. Their ids are those of the config, or
/// -1.
Tokens tokens_to_add(const TokenizerConfig& config, const text::TokenizerSpec& spec) {
  Tokens tokens;
  const Contents known_tokens(spec.added_tokens);
  std::unordered_set<std::string_view> named;
  for (const auto& [key, token] : config.special_tokens) {
    if (!key.empty()) named.insert(token.content);
  }
  const auto add_named = [&](text::AddedToken token) {
    token.special = token.special || named.contains(token.content);
    const auto known = known_tokens.find(token.content);
    if (!known || !same_flags(spec.added_tokens[*known], token)) tokens.push_back(std::move(token));
  };
  for (const text::AddedToken& token : config.added_tokens) add_named(token);
  // Without an added_tokens_decoder, transformers uses the tokens of tokenizer.json in its place.
  if (!config.has_added_tokens_decoder) {
    std::erase_if(tokens, [&](const text::AddedToken& token) { return known_tokens.contains(token.content); });
    for (const text::AddedToken& token : spec.added_tokens) add_named(token);
  }
  Contents contents(tokens);
  for (const auto& [key, token] : config.special_tokens) {
    if (token.content.empty() || known_tokens.contains(token.content) || contents.contains(token.content)) continue;
    contents.add(token.content, tokens.size());
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace

std::vector<text::AddedToken> add_tokens_beside_json(const TokenizerConfig& config, text::TokenizerSpec& spec) {
  Tokens added = tokens_to_add(config, spec);
  if (added.empty()) return {};
  std::unordered_map<std::string_view, TokenId> vocab(spec.model.vocab.begin(), spec.model.vocab.end());
  auto next_id = static_cast<TokenId>(vocab.size());
  for (const auto& token : spec.added_tokens) next_id += vocab.contains(token.content) ? 0 : 1;
  Contents contents(spec.added_tokens);
  Tokens renumbered;
  for (text::AddedToken& token : added) {
    const TokenId named_id = token.id;
    if (const auto known = contents.find(token.content)) {
      token.id = spec.added_tokens[*known].id;
      spec.added_tokens[*known] = token;
    } else {
      const auto in_vocab = vocab.find(token.content);
      token.id = in_vocab != vocab.end() ? in_vocab->second : next_id++;
      contents.add(token.content, spec.added_tokens.size());
      spec.added_tokens.push_back(token);
    }
    if (named_id >= 0 && named_id != token.id) renumbered.push_back(std::move(token));
  }
  return renumbered;
}

void add_special_tokens(const TokenizerConfig& config, const SpecialTokenDefaults& defaults,
                        const text::TokenModel& model, text::TokenizerSpec& spec) {
  spec.added_tokens = collect_tokens(config, defaults, model);
  text::TemplateSpec pieces;
  const auto add_if = [&](bool wanted, const char* key, const std::string& otherwise) {
    const text::AddedToken* named = config.special_token(key);
    const auto token =
        std::ranges::find(spec.added_tokens, named != nullptr ? named->content : otherwise, &text::AddedToken::content);
    if (wanted && token != spec.added_tokens.end()) pieces.push_back({false, {token->id}});
  };
  add_if(config.add_bos_token.value_or(defaults.add_bos_token), "bos_token", defaults.bos_token);
  pieces.push_back({true, {}});
  add_if(config.add_eos_token.value_or(false), "eos_token", defaults.eos_token);
  if (pieces.size() > 1) spec.post_processors.push_back(std::move(pieces));
}

}  // namespace pagoda::io
