#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// SentencePiece's ModelProto, as far as what it does to texts can be told in a GGUF file. Numbers are those of
/// sentencepiece_model.proto.
struct SentencePieceProto {
  enum class Algorithm : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceType : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string_view text;
    float score = 0;
    PieceType type = PieceType::normal;
  };

  Algorithm algorithm = Algorithm::bpe;
  std::vector<Piece> pieces;  ///< by id
  bool byte_fallback = false;
  std::string_view precompiled_charsmap;  ///< empty: characters stay as they are
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;           ///< a space becomes U+2581
  bool treat_whitespace_as_suffix = false;  ///< and ends a token
  std::string_view denormalizer_charsmap;   ///< what decoded texts go through; empty: nothing
};

/// The bytes of a tokenizer.model. Options that a GGUF file has no words for have their usual values there.
std::string serialize(const SentencePieceProto& proto);

/// What the bytes of a tokenizer.model say; it points into them. What is not known is passed over, as protobuf does.
/// Errors: bad_config (the bytes are not such a message).
Result<SentencePieceProto> parse_sentencepiece_proto(std::string_view bytes);

/// Whether the sentencepiece library can be given a model that says this: sound tables, finite scores. Errors:
/// bad_config.
Status check_sentencepiece_proto(const SentencePieceProto& proto);

/// Whether the sentencepiece library can use `charsmap` without reading outside of it: it follows what is written there
/// without a check. The format is that of its normalizer: the size of a double array (u32), that array as darts-clone
/// has it, and the texts that it points to, each with a zero behind.
bool is_sound_charsmap(std::string_view charsmap);

}  // namespace pagoda::io
