#include "io/model_files/bpe_of_sentencepiece.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/text/unicode.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

using Piece = SentencePieceProto::Piece;
using PieceType = SentencePieceProto::PieceType;

bool is_within_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

bool is_one_of_unicode(std::string_view text) {
  return !text.empty() && text::last_character_offset(text) == 0;
}

tl::unexpected<Error> not_bpe(const std::string& reason) {
  return fail(ErrorCode::unsupported, reason);
}

class MergeMaker {
 public:
  explicit MergeMaker(const SentencePieceProto& proto) : proto_(proto) {
    for (std::size_t id = 0; id < proto.pieces.size(); ++id) {
      if (proto.pieces[id].type == PieceType::normal) ids_.emplace(proto.pieces[id].text, id);
    }
  }

  Status check() const {
    if (proto_.algorithm != SentencePieceProto::Algorithm::bpe) return not_bpe("it is not BPE");
    if (!proto_.precompiled_charsmap.empty()) return not_bpe("it rewrites characters");
    if (proto_.remove_extra_whitespaces) return not_bpe("it removes spaces");
    for (const Piece& piece : proto_.pieces) {
      if (piece.type == PieceType::normal) continue;
      if (piece.type == PieceType::user_defined) {
        if (piece.text.find(kSentencePieceSpace) == piece.text.npos) continue;
        return not_bpe("the user-defined " + quote(piece.text) + " has a space");
      }
      if (is_one_of_unicode(piece.text)) return not_bpe(quote(piece.text) + " is a character without a meaning");
      // The library merges characters into an unused token and splits that token again afterwards.
      if (piece.type == PieceType::unused && !cuts(piece.text).empty()) {
        return not_bpe(quote(piece.text) + " is not used, but is made of others");
      }
    }
    return {};
  }

  Result<std::vector<std::pair<std::string, std::string>>> merges() const {
    struct Merged {
      std::string_view token;
      float score = 0;
      std::vector<std::size_t> cuts;
    };
    std::vector<Merged> made;
    for (const auto& [token, id] : ids_) {
      if (auto found = cuts(token); !found.empty()) made.push_back({token, proto_.pieces[id].score, std::move(found)});
    }
    std::ranges::sort(made, std::ranges::greater(), &Merged::score);
    const auto twin = std::ranges::adjacent_find(made, {}, &Merged::score);
    if (twin != made.end()) {
      return not_bpe(quote(twin->token) + " and " + quote((twin + 1)->token) + " have the same score");
    }
    std::vector<std::pair<std::string, std::string>> merges;
    for (const Merged& merged : made) {
      for (const std::size_t cut : merged.cuts) {
        const auto& [left, right] = merges.emplace_back(merged.token.substr(0, cut), merged.token.substr(cut));
        if (ids_.contains(left) && ids_.contains(right)) continue;
        return not_bpe(quote(merged.token) + " is made of a character that is not a token");
      }
    }
    return merges;
  }

 private:
  /// Returns the offsets at which `token` splits into two tokens, those with a longer left half first.
  std::vector<std::size_t> cuts(std::string_view token) const {
    std::vector<std::size_t> found;
    for (std::size_t cut = token.size(); cut-- > 1;) {
      if (is_within_character(token[cut])) continue;
      if (is_part(token.substr(0, cut)) && is_part(token.substr(cut))) found.push_back(cut);
    }
    return found;
  }

  /// The library merges all characters of a text, also characters that are no tokens.
  bool is_part(std::string_view part) const { return ids_.contains(part) || is_one_of_unicode(part); }

  const SentencePieceProto& proto_;
  std::unordered_map<std::string_view, std::size_t> ids_;  // ids of normal pieces
};

}  // namespace

Result<text::TokenizerSpec> bpe_of_sentencepiece(const SentencePieceProto& proto) {
  const MergeMaker maker(proto);
  if (Status status = maker.check(); !status) return fail(std::move(status.error()));
  auto merges = maker.merges();
  if (!merges) return fail(std::move(merges.error()));
  text::TokenizerSpec spec;
  for (std::size_t id = 0; id < proto.pieces.size(); ++id) {
    const Piece& piece = proto.pieces[id];
    spec.model.vocab.emplace_back(piece.text, static_cast<TokenId>(id));
    if (piece.type == PieceType::unknown) spec.model.unk_token = piece.text;
  }
  spec.model.merges = std::move(*merges);
  spec.model.fuse_unk = true;
  spec.model.byte_fallback = proto.byte_fallback;
  const std::string space(kSentencePieceSpace);
  if (proto.add_dummy_prefix) spec.normalizers.emplace_back(text::PrependNormalizer{space});
  spec.normalizers.emplace_back(text::ReplaceNormalizer{{" ", false}, space});
  return spec;
}

}  // namespace pagoda::io
