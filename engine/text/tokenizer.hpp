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

/// Text to token ids and back, with the results of the Hugging Face `tokenizers` package (with a SentencePiece model,
/// those of the `sentencepiece` package). Immutable after create: any
/// number of threads may use one object.
class Tokenizer final : public TokenTexts {
 public:
  /// Longest text that encode takes.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;

  /// Error: bad_config (or unsupported) that says which part of the spec is wrong; `param` is its key in
  /// tokenizer.json.
  static Result<std::shared_ptr<const Tokenizer>> create(const TokenizerSpec& spec);

  /// The ids of `text`. `add_special_tokens`: with the tokens that the post-processor puts around a text, such as <s>.
  /// A special token written in the text is that token, except where a byte of it is in one of `literals`: there it is
  /// read as ordinary text, so that what a client wrote cannot end its message or begin another. Everything else is as
  /// without literals: pieces run across their borders, and added tokens that are not special are found in them. Those
  /// are words of what models write (runs of spaces, "<think>" in Qwen3), and a chat that is sent back must give the
  /// tokens that the model made. Error: invalid_request when the text is not UTF-8 (the message names the byte), too
  /// long, or too hard for the tokenizer's regex, and as check_literals of literals.hpp.
  Result<TokenIds> encode(std::string_view text, bool add_special_tokens,
                          std::span<const ByteRange> literals = {}) const;

  /// As encode, but of a text with more tokens than `max_tokens` only its last ones: so many of them that there are
  /// `max_tokens` with those that the post-processor adds.
  Result<TokenIds> encode_end(std::string_view text, bool add_special_tokens, std::span<const ByteRange> literals,
                              std::size_t max_tokens) const;

  /// The text of `ids`, always valid UTF-8. Ids that no token has are left out.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// The token as it stands in the vocabulary ("\u2581the", "\u0120the", "<0x0A>"); empty for an id that no token has.
  std::string_view token_text(TokenId id) const;
  /// What a reader should see for one token: its text in the middle of a sentence, with its space; bytes that are no
  /// character alone are U+FFFD.
  std::string token_piece_text(TokenId id) const override;
  /// The bytes of a text that the token stands for, where others are before it; nothing for special tokens, for ids
  /// that no token has, and where it depends on the others.
  std::optional<std::string> token_bytes(TokenId id) const override;
  /// One more than the highest id.
  std::size_t vocab_size() const { return static_cast<std::size_t>(end_id_); }
  /// As max_bytes_per_token of text_bound.hpp: a longer text than n times this has more than n tokens.
  std::optional<std::int64_t> max_bytes_per_token() const { return max_bytes_per_token_; }
  bool is_special(TokenId id) const;
  /// What a special token is written as; nothing for all others.
  std::optional<std::string> special_text(TokenId id) const;
  /// What an added token, special or not, is written as; nothing for all others.
  std::optional<std::string_view> added_text(TokenId id) const;
  std::optional<TokenId> token_id(std::string_view token) const;

  /// Decoding one token at a time; see TokenDecoder, whose rules apply.
  TokenDecoder::State start_decoding() const { return decoder_.start(); }
  void decode_next(TokenDecoder::State& state, TokenId id, bool skip_special_tokens, std::string& out) const;
  void finish_decoding(TokenDecoder::State& state, std::string& out) const { decoder_.flush(state, out); }
  void leave_context(TokenDecoder::State& state) const { decoder_.leave_context(state); }

 private:
  struct Added {
    AddedToken token;
    std::string pattern;  // its form in the text, normalized if it wants to be
  };
  // An id's string for decoding; nullopt when no token has it.
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
