#include "engine/text/text_bound.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

/// A Unicode form or lower case makes UTF-8 at most 4 times shorter (a mathematical letter of 4 bytes becomes an ASCII
/// letter). This limit is twice as large, for safety.
constexpr std::int64_t kMaxShortening = 8;

/// Returns the factor by which the normalizers may shorten a text; nothing when they may drop any part of it.
std::optional<std::int64_t> shortening(const std::vector<NormalizerSpec>& normalizers) {
  std::int64_t factor = 1;
  for (const NormalizerSpec& normalizer : normalizers) {
    if (std::holds_alternative<StripNormalizer>(normalizer)) return std::nullopt;
    if (const auto* replace = std::get_if<ReplaceNormalizer>(&normalizer)) {
      if (replace->pattern.is_regex || replace->content.size() < replace->pattern.text.size()) return std::nullopt;
    } else if (!std::holds_alternative<PrependNormalizer>(normalizer)) {
      factor *= kMaxShortening;
    }
    if (factor > kMaxShortening * kMaxShortening) return std::nullopt;
  }
  return factor;
}

bool may_drop(const PreTokenizerSpec& pre_tokenizer) {
  if (const auto* split = std::get_if<SplitPreTokenizer>(&pre_tokenizer)) {
    return split->behavior == SplitBehavior::removed;
  }
  if (const auto* punctuation = std::get_if<PunctuationPreTokenizer>(&pre_tokenizer)) {
    return punctuation->behavior == SplitBehavior::removed;
  }
  return std::holds_alternative<WhitespacePreTokenizer>(pre_tokenizer) ||
         std::holds_alternative<WhitespaceSplitPreTokenizer>(pre_tokenizer);
}

std::string byte_fallback_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[static_cast<std::size_t>(byte / 16)], kDigits[static_cast<std::size_t>(byte % 16)],
          '>'};
}

/// Returns whether every character gives at least one token of its own, known or not.
bool takes_every_character(const TokenizerSpec& spec) {
  if (spec.model.unk_token && !spec.model.fuse_unk) return true;
  const bool byte_level = std::ranges::any_of(
      spec.pre_tokenizers, [](const auto& part) { return std::holds_alternative<ByteLevelPreTokenizer>(part); });
  if (!byte_level && !spec.model.byte_fallback) return false;
  std::unordered_set<std::string_view> tokens;
  for (const auto& [token, id] : spec.model.vocab) tokens.insert(token);
  for (int byte = 0; byte < 256; ++byte) {
    const bool known = byte_level ? tokens.contains(byte_level_character(static_cast<std::uint8_t>(byte)))
                                  : tokens.contains(byte_fallback_token(byte));
    if (!known) return false;
  }
  return true;
}

bool keeps_the_text(const TemplateSpec& pieces) {
  return std::ranges::any_of(pieces, [](const TemplatePiece& piece) { return piece.is_text; });
}

}  // namespace

std::optional<std::int64_t> max_bytes_per_token(const TokenizerSpec& spec) {
  if (spec.sentencepiece != nullptr) return std::nullopt;  // the rules of SentencePiece remove white space
  const auto factor = shortening(spec.normalizers);
  if (!factor || std::ranges::any_of(spec.pre_tokenizers, may_drop) || !takes_every_character(spec) ||
      !std::ranges::all_of(spec.post_processors, keeps_the_text)) {
    return std::nullopt;
  }
  std::size_t longest = 4;  // bytes of one unknown character
  for (const auto& [token, id] : spec.model.vocab) longest = std::max(longest, token.size());
  for (const AddedToken& token : spec.added_tokens) {
    if (token.lstrip || token.rstrip) return std::nullopt;  // such a token takes any white space with it
    longest = std::max(longest, token.content.size());
  }
  return *factor * static_cast<std::int64_t>(longest);
}

}  // namespace pagoda::text
