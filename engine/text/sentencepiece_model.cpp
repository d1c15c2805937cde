#include "engine/text/sentencepiece_model.hpp"

#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr TokenId kMaxTokens = 1 << 22;
// ModelProto.normalizer_spec.add_dummy_prefix = false in protobuf's encoding. Concatenated messages are merged, so
// these bytes after a model switch the option off.
constexpr std::string_view kNoSpaceBefore("\x1a\x02\x18\x00", 4);

std::optional<TokenId> known(int id) {
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

Status load(SentencePieceProcessor& processor, std::string_view bytes) {
  constexpr const char* kNoModel = "is not a SentencePiece model: ";
  try {
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (status.ok()) return {};
    return fail(ErrorCode::bad_config, kNoModel + to_valid_utf8(status.error_message()));
  } catch (const std::exception&) {
    // The library's tries do not accept all tokens that may stand in a file, such as tokens that begin with a zero.
    return fail(ErrorCode::bad_config, std::string(kNoModel) + "its tokens make no tree to look them up in");
  }
}

}  // namespace

struct SentencePieceModel::Processors {
  SentencePieceProcessor at_start;
  std::unique_ptr<SentencePieceProcessor> later;  // null: at_start serves here too
};

SentencePieceModel::SentencePieceModel(std::unique_ptr<Processors> processors) : processors_(std::move(processors)) {
  const SentencePieceProcessor& processor = processors_->at_start;
  end_id_ = processor.GetPieceSize();
  // The library does not report its options, so they are found by their effects.
  const auto decoded = [&](const std::vector<std::string>& pieces) {
    std::string text;
    return processor.Decode(pieces, &text).ok() ? text : std::string();
  };
  if (!decoded({"\u2581a"}).starts_with(' ')) leading_spaces_dropped_ = 1;
  if (leading_spaces_dropped_ == 1 && !decoded({"\u2581", "\u2581a"}).starts_with(' ')) {
    leading_spaces_dropped_ = std::numeric_limits<int>::max();
  }
}

SentencePieceModel::~SentencePieceModel() = default;

Result<std::shared_ptr<const SentencePieceModel>> SentencePieceModel::create(std::string_view bytes,
                                                                             SpaceBefore space_before) {
  auto processors = std::make_unique<Processors>();
  std::string without_space;
  if (space_before != SpaceBefore::each_text) {
    without_space = bytes;
    without_space += kNoSpaceBefore;
  }
  if (Status status = load(processors->at_start, space_before == SpaceBefore::none ? without_space : bytes); !status) {
    return fail(status.error());
  }
  if (space_before == SpaceBefore::first_text) {
    processors->later = std::make_unique<SentencePieceProcessor>();
    if (Status status = load(*processors->later, without_space); !status) return fail(status.error());
  }
  const int size = processors->at_start.GetPieceSize();
  if (size < 1 || size > kMaxTokens) {
    return fail(ErrorCode::bad_config,
                "has " + std::to_string(size) + " tokens, outside 1.." + std::to_string(kMaxTokens));
  }
  for (int id = 0; id < size; ++id) {
    if (find_invalid_utf8(processors->at_start.IdToPiece(id)) == std::string_view::npos) continue;
    return fail(ErrorCode::bad_config, "the token with id " + std::to_string(id) + " is not valid UTF-8");
  }
  return std::shared_ptr<const SentencePieceModel>(new SentencePieceModel(std::move(processors)));
}

Status SentencePieceModel::encode_pieces(std::string_view buffer, std::span<const Span> pieces, bool at_text_start,
                                         TokenIds& ids) const {
  std::vector<int> piece_ids;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool first = i == 0 && at_text_start;
    const SentencePieceProcessor& processor =
        first || processors_->later == nullptr ? processors_->at_start : *processors_->later;
    const auto status = processor.Encode(buffer.substr(pieces[i].begin, pieces[i].end - pieces[i].begin), &piece_ids);
    if (!status.ok()) return fail(ErrorCode::internal, to_valid_utf8(status.error_message()));
    ids.insert(ids.end(), piece_ids.begin(), piece_ids.end());
  }
  return {};
}

std::optional<TokenId> SentencePieceModel::find(std::string_view token_text) const {
  // The library returns the id of the unknown token for an unknown string.
  const TokenId id = processors_->at_start.PieceToId(token_text);
  return token(id) == token_text ? std::optional<TokenId>(id) : std::nullopt;
}

std::string_view SentencePieceModel::token(TokenId id) const {
  return has(id) ? std::string_view(processors_->at_start.IdToPiece(id)) : std::string_view();
}

bool SentencePieceModel::is_control(TokenId id) const {
  return has(id) && processors_->at_start.IsControl(id);
}

std::optional<TokenId> SentencePieceModel::unk_id() const {
  return known(processors_->at_start.unk_id());
}

std::optional<TokenId> SentencePieceModel::bos_id() const {
  return known(processors_->at_start.bos_id());
}

std::optional<TokenId> SentencePieceModel::eos_id() const {
  return known(processors_->at_start.eos_id());
}

}  // namespace pagoda::text
