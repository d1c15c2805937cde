#include "io/model_files/tokenizer_json_writer.hpp"

#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/result.hpp"

namespace pagoda::io {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const text::Pattern& pattern) {
  return {{pattern.is_regex ? "Regex" : "String", pattern.text}};
}

const char* name_of(text::SplitBehavior behavior) {
  switch (behavior) {
    case text::SplitBehavior::removed:
      return "Removed";
    case text::SplitBehavior::isolated:
      return "Isolated";
    case text::SplitBehavior::merged_with_previous:
      return "MergedWithPrevious";
    case text::SplitBehavior::merged_with_next:
      return "MergedWithNext";
    case text::SplitBehavior::contiguous:
      break;
  }
  return "Contiguous";
}

const char* name_of(text::PrependScheme scheme) {
  if (scheme == text::PrependScheme::first) return "first";
  return scheme == text::PrependScheme::never ? "never" : "always";
}

const char* name_of(text::UnicodeForm form) {
  switch (form) {
    case text::UnicodeForm::nfc:
      return "NFC";
    case text::UnicodeForm::nfd:
      return "NFD";
    case text::UnicodeForm::nfkc:
      return "NFKC";
    case text::UnicodeForm::nfkd:
      break;
  }
  return "NFKD";
}

/// Writes a part of the spec as the file's JSON.
struct PartWriter {
  ordered_json operator()(const text::PrependNormalizer& part) const {
    return {{"type", "Prepend"}, {"prepend", part.text}};
  }
  ordered_json operator()(const text::ReplaceNormalizer& part) const {
    return {{"type", "Replace"}, {"pattern", to_json(part.pattern)}, {"content", part.content}};
  }
  ordered_json operator()(const text::UnicodeNormalizer& part) const { return {{"type", name_of(part.form)}}; }
  ordered_json operator()(const text::StripNormalizer& part) const {
    return {{"type", "Strip"}, {"strip_left", part.left}, {"strip_right", part.right}};
  }
  ordered_json operator()(const text::LowercaseNormalizer&) const { return {{"type", "Lowercase"}}; }

  ordered_json operator()(const text::ByteLevelPreTokenizer& part) const {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", part.add_prefix_space},
            {"trim_offsets", true},
            {"use_regex", part.use_regex}};
  }
  ordered_json operator()(const text::SplitPreTokenizer& part) const {
    return {{"type", "Split"},
            {"pattern", to_json(part.pattern)},
            {"behavior", name_of(part.behavior)},
            {"invert", part.invert}};
  }
  ordered_json operator()(const text::DigitsPreTokenizer& part) const {
    return {{"type", "Digits"}, {"individual_digits", part.individual_digits}};
  }
  ordered_json operator()(const text::MetaspacePreTokenizer& part) const {
    return {{"type", "Metaspace"},
            {"replacement", part.replacement},
            {"prepend_scheme", name_of(part.prepend_scheme)},
            {"split", part.split}};
  }
  ordered_json operator()(const text::WhitespacePreTokenizer&) const { return {{"type", "Whitespace"}}; }
  ordered_json operator()(const text::WhitespaceSplitPreTokenizer&) const { return {{"type", "WhitespaceSplit"}}; }
  ordered_json operator()(const text::PunctuationPreTokenizer& part) const {
    return {{"type", "Punctuation"}, {"behavior", name_of(part.behavior)}};
  }

  ordered_json operator()(const text::ByteLevelDecoder&) const {
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  }
  ordered_json operator()(const text::ReplaceDecoder& part) const {
    return {{"type", "Replace"}, {"pattern", to_json(part.pattern)}, {"content", part.content}};
  }
  ordered_json operator()(const text::ByteFallbackDecoder&) const { return {{"type", "ByteFallback"}}; }
  ordered_json operator()(const text::FuseDecoder&) const { return {{"type", "Fuse"}}; }
  ordered_json operator()(const text::StripDecoder& part) const {
    return {{"type", "Strip"}, {"content", part.content}, {"start", part.start}, {"stop", part.stop}};
  }
  ordered_json operator()(const text::MetaspaceDecoder& part) const {
    return {{"type", "Metaspace"},
            {"replacement", part.replacement},
            {"prepend_scheme", name_of(part.prepend_scheme)},
            {"split", true}};
  }
};

/// Returns null without parts, and the part itself where there is only one.
template <class Part>
ordered_json sequence(const std::vector<Part>& parts, const char* list) {
  if (parts.empty()) return nullptr;
  ordered_json written = ordered_json::array();
  for (const Part& part : parts) written.push_back(std::visit(PartWriter{}, part));
  if (written.size() == 1) return std::move(written.front());
  return {{"type", "Sequence"}, {list, std::move(written)}};
}

ordered_json template_processing(const text::TemplateSpec& pieces,
                                 const std::unordered_map<TokenId, std::string_view>& names) {
  ordered_json single = ordered_json::array();
  ordered_json specials = ordered_json::object();
  ordered_json second = ordered_json::array();
  for (const text::TemplatePiece& piece : pieces) {
    if (piece.is_text) {
      single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
      second.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
      continue;
    }
    for (const TokenId id : piece.ids) {
      const auto name = names.find(id);
      PAGODA_ASSERT(name != names.end(), "tokens around a text are in the vocabulary");
      single.push_back({{"SpecialToken", {{"id", name->second}, {"type_id", 0}}}});
      second.push_back({{"SpecialToken", {{"id", name->second}, {"type_id", 1}}}});
      specials[std::string(name->second)] = {
          {"id", name->second}, {"ids", ordered_json::array({id})}, {"tokens", ordered_json::array({name->second})}};
    }
  }
  ordered_json pair = single;
  pair.insert(pair.end(), second.begin(), second.end());
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(specials)}};
}

ordered_json post_processor(const text::TokenizerSpec& spec) {
  if (spec.post_processors.empty()) return nullptr;
  std::unordered_map<TokenId, std::string_view> names;
  for (const auto& [token, id] : spec.model.vocab) names.emplace(id, token);
  for (const text::AddedToken& token : spec.added_tokens) names.insert_or_assign(token.id, token.content);
  ordered_json processors = ordered_json::array();
  for (const text::TemplateSpec& pieces : spec.post_processors) {
    processors.push_back(template_processing(pieces, names));
  }
  if (processors.size() == 1) return std::move(processors.front());
  return {{"type", "Sequence"}, {"processors", std::move(processors)}};
}

ordered_json added_tokens(const text::TokenizerSpec& spec) {
  ordered_json tokens = ordered_json::array();
  for (const text::AddedToken& token : spec.added_tokens) {
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  }
  return tokens;
}

ordered_json bpe(const text::BpeSpec& spec) {
  ordered_json::object_t vocab;
  vocab.reserve(spec.vocab.size());
  // The items go directly into the vector: the object's own insertion searches all keys each time.
  for (const auto& [token, id] : spec.vocab) vocab.emplace_back(token, id);
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : spec.merges) merges.push_back(ordered_json::array({left, right}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", spec.unk_token ? ordered_json(*spec.unk_token) : ordered_json()},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", spec.fuse_unk},
          {"byte_fallback", spec.byte_fallback},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string write_tokenizer_json(const text::TokenizerSpec& spec) {
  PAGODA_ASSERT(spec.sentencepiece == nullptr, "the tokenizer is BPE");
  const ordered_json document{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(spec)},
      {"normalizer", sequence(spec.normalizers, "normalizers")},
      {"pre_tokenizer", sequence(spec.pre_tokenizers, "pretokenizers")},
      {"post_processor", post_processor(spec)},
      {"decoder", spec.decoders ? sequence(*spec.decoders, "decoders") : ordered_json()},
      {"model", bpe(spec.model)},
  };
  return document.dump(2) + "\n";
}

}  // namespace pagoda::io
