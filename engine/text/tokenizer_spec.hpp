#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/types.hpp"

/// The parts of a tokenizer as plain data. io/ turns a file format into a TokenizerSpec, and Tokenizer::create turns a
/// TokenizerSpec into a Tokenizer. The parts and their meanings are those of the Hugging Face `tokenizers` package; its
/// Sequence parts are flattened into the lists below.
namespace pagoda::text {

/// A text to search for: literal, or a regular expression in Oniguruma's (Ruby) syntax.
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

/// What a split does with the matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
/// When a Metaspace puts its replacement before a piece that does not start with it.
enum class PrependScheme { first, never, always };

/// GPT-2's method: every byte becomes one visible character.
struct ByteLevelPreTokenizer {
  bool add_prefix_space = true;
  bool use_regex = true;  ///< whether to split with GPT-2's pattern first
  bool operator==(const ByteLevelPreTokenizer&) const = default;
};
struct SplitPreTokenizer {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< true: the matches are the pieces; false: they separate the pieces
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
  bool is_text = false;  ///< whether the ids of the text stand here
  TokenIds ids;          ///< otherwise these ids stand here, when special tokens are wanted
  bool operator==(const TemplatePiece&) const = default;
};
using TemplateSpec = std::vector<TemplatePiece>;

// ---- Decoders: turn the list of token strings back into text. Each works on the list that the decoder before it
// leaves.

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
  std::string content;  ///< one character, which is dropped
  int start = 0;        ///< number of characters dropped at most at the start of each token
  int stop = 0;         ///< number of characters dropped at most at its end
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

/// A token that is found in the text before any other processing.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< whether it is found only where no word character touches it
  bool lstrip = false;       ///< whether it takes the white space on its left with it
  bool rstrip = false;       ///< whether it takes the white space on its right with it
  bool normalized = false;   ///< whether it is searched for in the normalized text, in its own normalized form
  bool special = false;      ///< whether it is left out of decoded text when special tokens are skipped

  bool operator==(const AddedToken&) const = default;
};

/// Byte-pair encoding.
struct BpeSpec {
  std::vector<std::pair<std::string, TokenId>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  std::optional<std::string> unk_token;                     ///< without one, unknown characters are dropped
  /// Whether neighbouring unknown characters give one unk_token.
  bool fuse_unk = false;
  bool byte_fallback = false;  ///< whether unknown characters become tokens like "<0xE4>"
  bool ignore_merges = false;  ///< whether a piece that is a token becomes that token
};

class SentencePieceModel;

struct TokenizerSpec {
  BpeSpec model;
  std::shared_ptr<const SentencePieceModel> sentencepiece;  ///< if it is set, `model` is not used
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerSpec> normalizers;
  std::vector<PreTokenizerSpec> pre_tokenizers;
  std::vector<TemplateSpec> post_processors;
  std::optional<std::vector<DecoderSpec>> decoders;  ///< if absent, tokens are joined with spaces
};

}  // namespace pagoda::text
