#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/types.hpp"

/// What a tokenizer is made of, as plain data. A file format is turned into a TokenizerSpec by io/, and a TokenizerSpec
/// into a Tokenizer by Tokenizer::create. The parts and their meanings are those of the Hugging Face `tokenizers`
/// package; its Sequence parts are flattened into the lists below.
namespace pagoda::text {

/// Text to look for: literal, or a regular expression in Oniguruma's (Ruby) syntax.
struct Pattern {
  std::string text;
  bool is_regex = false;
  bool operator==(const Pattern&) const = default;
};

// ---- Normalizers: rewrite the text before it is split.

struct PrependNormalizer {
  std::string text;  ///< put before every text that is not empty
  bool operator==(const PrependNormalizer&) const = default;
};
struct ReplaceNormalizer {
  Pattern pattern;
  std::string content;
  bool operator==(const ReplaceNormalizer&) const = default;
};
enum class UnicodeForm { nfc, nfd, nfkc, nfkd };
struct UnicodeNormalizer {
  UnicodeForm form = UnicodeForm::nfc;
  bool operator==(const UnicodeNormalizer&) const = default;
};
struct StripNormalizer {
  bool left = true;
  bool right = true;
  bool operator==(const StripNormalizer&) const = default;
};
struct LowercaseNormalizer {
  bool operator==(const LowercaseNormalizer&) const = default;
};

using NormalizerSpec =
    std::variant<PrependNormalizer, ReplaceNormalizer, UnicodeNormalizer, StripNormalizer, LowercaseNormalizer>;

// ---- Pre-tokenizers: split the text into pieces; no token crosses a piece.

/// What becomes of the matches of a split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
/// When the replacement of a Metaspace is put before a piece that does not start with it.
enum class PrependScheme { first, never, always };

/// GPT-2's way: every byte becomes one visible character.
struct ByteLevelPreTokenizer {
  bool add_prefix_space = true;
  bool use_regex = true;  ///< split with GPT-2's pattern first
  bool operator==(const ByteLevelPreTokenizer&) const = default;
};
struct SplitPreTokenizer {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the matches are the pieces, not what separates them
  bool operator==(const SplitPreTokenizer&) const = default;
};
struct DigitsPreTokenizer {
  bool individual_digits = false;
  bool operator==(const DigitsPreTokenizer&) const = default;
};
struct MetaspacePreTokenizer {
  std::string replacement = "\u2581";  ///< one character
  PrependScheme prepend_scheme = PrependScheme::always;
  bool split = true;
  bool operator==(const MetaspacePreTokenizer&) const = default;
};
/// Words and runs of punctuation; white space is dropped.
struct WhitespacePreTokenizer {
  bool operator==(const WhitespacePreTokenizer&) const = default;
};
/// Splits at white space, which is dropped.
struct WhitespaceSplitPreTokenizer {
  bool operator==(const WhitespaceSplitPreTokenizer&) const = default;
};
struct PunctuationPreTokenizer {
  SplitBehavior behavior = SplitBehavior::isolated;
  bool operator==(const PunctuationPreTokenizer&) const = default;
};

using PreTokenizerSpec =
    std::variant<ByteLevelPreTokenizer, SplitPreTokenizer, DigitsPreTokenizer, MetaspacePreTokenizer,
                 WhitespacePreTokenizer, WhitespaceSplitPreTokenizer, PunctuationPreTokenizer>;

// ---- Post-processor: puts special tokens around the ids of the text.

struct TemplatePiece {
  bool is_text = false;  ///< the ids of the text stand here
  TokenIds ids;          ///< otherwise these, when special tokens are wanted
  bool operator==(const TemplatePiece&) const = default;
};
using TemplateSpec = std::vector<TemplatePiece>;

// ---- Decoders: turn the list of token strings back into text, each on the list that the one before leaves.

struct ByteLevelDecoder {
  bool operator==(const ByteLevelDecoder&) const = default;
};
struct ReplaceDecoder {
  Pattern pattern;
  std::string content;
  bool operator==(const ReplaceDecoder&) const = default;
};
/// A run of tokens like "<0xE4>" becomes the bytes' text, or one U+FFFD for each byte when the run is not UTF-8.
struct ByteFallbackDecoder {
  bool operator==(const ByteFallbackDecoder&) const = default;
};
struct FuseDecoder {
  bool operator==(const FuseDecoder&) const = default;
};
struct StripDecoder {
  std::string content;  ///< one character, dropped
  int start = 0;        ///< at most so often at the start of each token
  int stop = 0;         ///< and at its end
  bool operator==(const StripDecoder&) const = default;
};
struct MetaspaceDecoder {
  std::string replacement = "\u2581";
  PrependScheme prepend_scheme = PrependScheme::always;
  bool operator==(const MetaspaceDecoder&) const = default;
};

using DecoderSpec =
    std::variant<ByteLevelDecoder, ReplaceDecoder, ByteFallbackDecoder, FuseDecoder, StripDecoder, MetaspaceDecoder>;

// ---- Vocabulary.

/// A token that is found in the text before anything else looks at it.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space on its left with it
  bool rstrip = false;       ///< and on its right
  bool normalized = false;   ///< looked for in the normalized text, in its own normalized form
  bool special = false;      ///< left out of decoded text when special tokens are skipped

  bool operator==(const AddedToken&) const = default;
};

/// Byte-pair encoding.
struct BpeSpec {
  std::vector<std::pair<std::string, TokenId>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  std::optional<std::string> unk_token;                     ///< without one, unknown characters are dropped
  bool fuse_unk = false;                                    ///< neighbouring unknown characters give one unk_token
  bool byte_fallback = false;                               ///< unknown characters become tokens like "<0xE4>"
  bool ignore_merges = false;                               ///< a piece that is a token is that token
};

class SentencePieceModel;

struct TokenizerSpec {
  BpeSpec model;
  std::shared_ptr<const SentencePieceModel> sentencepiece;  ///< where it is set, `model` is not looked at
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerSpec> normalizers;
  std::vector<PreTokenizerSpec> pre_tokenizers;
  std::vector<TemplateSpec> post_processors;
  std::optional<std::vector<DecoderSpec>> decoders;  ///< without any, tokens are joined with spaces
};

}  // namespace pagoda::text
