#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// The parts of SentencePiece's ModelProto that determine how texts are tokenized. Numbers of enums are those of
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
  std::string_view precompiled_charsmap;  ///< empty: characters are not changed
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;           ///< a space becomes U+2581
  bool treat_whitespace_as_suffix = false;  ///< whether a space ends a token; else it begins one
  std::string_view denormalizer_charsmap;   ///< charsmap for decoded texts; empty: they are not changed
};

/// Returns the bytes of a tokenizer.model. Options that a GGUF file cannot express have their default values there.
std::string serialize(const SentencePieceProto& proto);

/// Parses the bytes of a tokenizer.model; the result points into them. Unknown fields are skipped, as in protobuf.
/// Errors: bad_config (the bytes are not such a message).
Result<SentencePieceProto> parse_sentencepiece_proto(std::string_view bytes);

/// Checks that the sentencepiece library can load such a model: valid tables, finite scores. Errors: bad_config.
Status check_sentencepiece_proto(const SentencePieceProto& proto);

/// Returns whether the sentencepiece library can use `charsmap` without reading outside of it: the library does not
/// check it. The format is that of its normalizer: the size of a double array (u32), the double array of darts-clone,
/// and the texts that it points to, each with a zero byte at its end.
bool is_valid_charsmap(std::string_view charsmap);

}  // namespace pagoda::io
