#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/request/logprobs.hpp"
#include "engine/text/added_tokens.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/token_decoder.hpp"
#include "engine/text/token_model.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Converts text to token ids and back, with the results of the Hugging Face `tokenizers` package (with a SentencePiece
/// model, of the `sentencepiece` package). Immutable after create: any number of threads may use one object.
class Tokenizer final : public TokenTexts {
 public:
  /// Size of the longest text that encode accepts.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;

  /// Error: bad_config (or unsupported) that names the wrong part of the spec; `param` is its key in tokenizer.json.
  static Result<std::shared_ptr<const Tokenizer>> create(const TokenizerSpec& spec);

  /// Returns the ids of `text`. `add_special_tokens`: whether to add the tokens that the post-processor puts around a
  /// text, such as <s>. A special token written in the text becomes that token, unless one of its bytes is in one of
  /// `literals`: then it is read as ordinary text, so that a client's text cannot end its message or begin another.
  /// Literals change nothing else: pieces run across their borders, and added tokens that are not special are found in
  /// them. Models write such added tokens (runs of spaces, "<think>" in Qwen3), and a chat that is sent back must give
  /// the tokens that the model made. Errors: invalid_request when the text is not UTF-8 (the message names the byte),
  /// too long, or too hard for the tokenizer's regex; errors of check_literals in literals.hpp.
  Result<TokenIds> encode(std::string_view text, bool add_special_tokens,
                          std::span<const ByteRange> literals = {}) const;

  /// Encodes as encode does, but keeps only the last tokens of the text: so many that there are at most `max_tokens`
  /// together with the tokens that the post-processor adds.
  Result<TokenIds> encode_end(std::string_view text, bool add_special_tokens, std::span<const ByteRange> literals,
                              std::size_t max_tokens) const;

  /// Returns the text of `ids`, which is always valid UTF-8. Ids that no token has are left out.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// Returns the token as it stands in the vocabulary ("\u2581the", "\u0120the", "<0x0A>"); empty for an id that no
  /// token has.
  std::string_view token_text(TokenId id) const;
  /// Returns the text of one token for a reader: its text in the middle of a sentence, with its space. Bytes that are
  /// no character alone are U+FFFD.
  std::string token_piece_text(TokenId id) const override;
  /// Returns the bytes of a text that the token stands for after other tokens; nothing for special tokens, for ids that
  /// no token has, and if the bytes depend on the other tokens.
  std::optional<std::string> token_bytes(TokenId id) const override;
  /// Returns one more than the highest id.
  std::size_t vocab_size() const { return static_cast<std::size_t>(end_id_); }
  /// Returns max_bytes_per_token of text_bound.hpp: a text longer than n times this number has more than n tokens.
  std::optional<std::int64_t> max_bytes_per_token() const { return max_bytes_per_token_; }
  bool is_special(TokenId id) const;
  /// Returns the written form of a special token; nothing for all other tokens.
  std::optional<std::string> special_text(TokenId id) const;
  /// Returns the written form of an added token, special or not; nothing for all other tokens.
  std::optional<std::string_view> added_text(TokenId id) const;
  std::optional<TokenId> token_id(std::string_view token) const;

  /// Decode one token at a time. The rules of TokenDecoder apply.
  TokenDecoder::State start_decoding() const { return decoder_.start(); }
  void decode_next(TokenDecoder::State& state, TokenId id, bool skip_special_tokens, std::string& out) const;
  void finish_decoding(TokenDecoder::State& state, std::string& out) const { decoder_.flush(state, out); }
  void leave_context(TokenDecoder::State& state) const { decoder_.leave_context(state); }

 private:
  struct Added {
    AddedToken token;
    std::string pattern;  // its form in the text, normalized if the token says so
  };
  // Returns an id's string for decoding; nullopt when no token has the id.
  std::optional<std::string_view> decoded_string(TokenId id) const;
  Status add_tokens(const std::vector<AddedToken>& tokens);
  Status check_templates(const std::vector<TemplateSpec>& templates) const;
  Result<TokenIds> encode_text(std::string_view text, std::span<const ByteRange> literals) const;
  TokenIds post_process(TokenIds ids) const;
  Status encode_segment(std::string_view text, bool at_text_start, std::span<const ByteRange> literals,
                        TokenIds& ids) const;

  Tokenizer(std::shared_ptr<const TokenModel> model, Normalizer normalizer, PreTokenizer pre_tokenizer,
            TokenDecoder decoder)
      : model_(std::move(model)),
        normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        decoder_(std::move(decoder)) {}

  std::shared_ptr<const TokenModel> model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  std::vector<TemplateSpec> templates_;
  std::unordered_map<TokenId, Added> added_;
  std::unordered_map<std::string_view, TokenId> added_ids_;  // views into added_
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  TokenId end_id_ = 0;
  std::optional<std::int64_t> max_bytes_per_token_;
};

}  // namespace pagoda::text
