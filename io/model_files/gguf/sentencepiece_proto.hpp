#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::io {

/// SentencePiece's ModelProto, as far as it can be made of a GGUF file. Numbers are those of sentencepiece_model.proto.
struct SentencePieceProto {
  enum class Algorithm : std::uint8_t { unigram = 1, bpe = 2 };
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
};

/// The bytes of a tokenizer.model.
std::string serialize(const SentencePieceProto& proto);

/// Whether the sentencepiece library can use `charsmap` without reading outside of it: it follows what is written there
/// without a check. The format is that of its normalizer: the size of a double array (u32), that array as darts-clone
/// has it, and the texts that it points to, each with a zero behind.
bool is_sound_charsmap(std::string_view charsmap);

}  // namespace pagoda::io
