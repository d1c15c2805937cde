#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/text/token_model.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// A SentencePiece model (BPE or unigram, with its own normalization), run by the sentencepiece library. It treats
/// special tokens in a text as ordinary text.
class SentencePieceModel final : public TokenModel {
 public:
  /// Where the model puts the space that such models put before a text.
  enum class SpaceBefore : std::uint8_t {
    each_text,   ///< before every part between special tokens, if the model does so
    first_text,  ///< only before the part at the start of the text
    none,
  };

  /// `bytes`: a whole tokenizer.model. Error: bad_config when the library does not accept it.
  static Result<std::shared_ptr<const SentencePieceModel>> create(std::string_view bytes, SpaceBefore space_before);
  ~SentencePieceModel() override;

  Status encode_pieces(std::string_view buffer, std::span<const Span> pieces, bool at_text_start,
                       TokenIds& ids) const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string_view token(TokenId id) const override;
  bool has(TokenId id) const override { return id >= 0 && id < end_id_; }
  TokenId end_id() const override { return end_id_; }
  std::size_t size() const override { return static_cast<std::size_t>(end_id_); }

  /// Returns whether the token is a control token such as <s>, which stands for no text.
  bool is_control(TokenId id) const;
  std::optional<TokenId> unk_id() const;
  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;
  /// Returns how many spaces at the start of a decoded text the model drops at most, because it adds them itself.
  int leading_spaces_dropped() const { return leading_spaces_dropped_; }

 private:
  struct Processors;
  explicit SentencePieceModel(std::unique_ptr<Processors> processors);

  std::unique_ptr<Processors> processors_;
  TokenId end_id_ = 0;
  int leading_spaces_dropped_ = 0;
};

}  // namespace pagoda::text
