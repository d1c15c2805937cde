#include "engine/text/tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "engine/text/bpe_model.hpp"
#include "engine/text/literals.hpp"
#include "engine/text/sentencepiece_model.hpp"
#include "engine/text/text_bound.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

constexpr std::size_t kMaxParts = 64;

Status check_count(std::size_t count, const char* key) {
  if (count <= kMaxParts) return {};
  return fail(ErrorCode::bad_config,
              "has " + std::to_string(count) + " parts; at most " + std::to_string(kMaxParts) + " are allowed", key);
}

tl::unexpected<Error> bad_added_token(const AddedToken& token, const std::string& reason) {
  return fail(ErrorCode::bad_config, "added token \"" + to_valid_utf8(token.content) + "\" " + reason, "added_tokens");
}

Result<std::shared_ptr<const TokenModel>> create_model(const TokenizerSpec& spec) {
  if (spec.sentencepiece != nullptr) return spec.sentencepiece;
  Result<BpeModel> model = BpeModel::create(spec.model);
  if (!model) return fail(std::move(model.error()));
  return std::make_shared<const BpeModel>(std::move(*model));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(const TokenizerSpec& spec) {
  Status counts = check_count(spec.normalizers.size(), "normalizer");
  if (counts) counts = check_count(spec.pre_tokenizers.size(), "pre_tokenizer");
  if (counts) counts = check_count(spec.post_processors.size(), "post_processor");
  if (counts && spec.decoders) counts = check_count(spec.decoders->size(), "decoder");
  if (!counts) return fail(std::move(counts.error()));
  Result<std::shared_ptr<const TokenModel>> model = create_model(spec);
  if (!model) return fail(std::move(model.error()));
  Result<Normalizer> normalizer = Normalizer::create(spec.normalizers);
  if (!normalizer) return fail(std::move(normalizer.error()));
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::create(spec.pre_tokenizers);
  if (!pre_tokenizer) return fail(std::move(pre_tokenizer.error()));
  Result<TokenDecoder> decoder = TokenDecoder::create(spec.decoders);
  if (!decoder) return fail(std::move(decoder.error()));

  const std::shared_ptr<Tokenizer> tokenizer(
      new Tokenizer(std::move(*model), std::move(*normalizer), std::move(*pre_tokenizer), std::move(*decoder)));
  if (Status status = tokenizer->add_tokens(spec.added_tokens); !status) return fail(status.error());
  if (Status status = tokenizer->check_templates(spec.post_processors); !status) return fail(status.error());
  tokenizer->templates_ = spec.post_processors;
  tokenizer->max_bytes_per_token_ = text::max_bytes_per_token(spec);
  return tokenizer;
}

// Tokens that the model knows keep the model's id; the others are numbered after the vocabulary, in order.
Status Tokenizer::add_tokens(const std::vector<AddedToken>& tokens) {
  end_id_ = model_->end_id();
  auto next_id = static_cast<TokenId>(model_->size());
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) return bad_added_token(token, "is empty");
    if (find_invalid_utf8(token.content) != std::string_view::npos) return bad_added_token(token, "is not valid UTF-8");
    if (const auto known = added_.find(token.id); known != added_.end()) {
      if (known->second.token == token) continue;
      return bad_added_token(token,
                             "has the id " + std::to_string(token.id) + " of \"" + known->second.token.content + "\"");
    }
    if (added_ids_.contains(token.content)) return bad_added_token(token, "is listed twice");
    const std::optional<TokenId> model_id = model_->find(token.content);
    const TokenId id = model_id ? *model_id : next_id++;
    if (id != token.id) {
      return bad_added_token(
          token, "has the id " + std::to_string(token.id) + ", but its id in the vocabulary is " + std::to_string(id));
    }
    Added added{token, token.content};
    if (token.normalized) {
      Result<Normalizer::Output> normalized = normalizer_.apply(token.content);
      if (!normalized) return fail(std::move(normalized.error()));
      if (normalized->text.empty()) return bad_added_token(token, "is empty when it is normalized");
      added.pattern = std::move(normalized->text);
    }
    AddedTokenMatcher& matcher = token.normalized ? normalized_matcher_ : raw_matcher_;
    if (Status status = matcher.add(token, added.pattern); !status) return status;
    const auto [entry, inserted] = added_.emplace(id, std::move(added));
    added_ids_.emplace(entry->second.token.content, id);
    end_id_ = std::max(end_id_, id + 1);
  }
  return {};
}

Status Tokenizer::check_templates(const std::vector<TemplateSpec>& templates) const {
  for (const TemplateSpec& pieces : templates) {
    for (const TemplatePiece& piece : pieces) {
      for (const TokenId id : piece.ids) {
        if (!decoded_string(id)) {
          return fail(ErrorCode::bad_config, "the template uses the id " + std::to_string(id) + ", which no token has",
                      "post_processor");
        }
      }
    }
  }
  return {};
}

Result<TokenIds> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                   std::span<const ByteRange> literals) const {
  Result<TokenIds> ids = encode_text(text, literals);
  return ids && add_special_tokens ? post_process(std::move(*ids)) : ids;
}

Result<TokenIds> Tokenizer::encode_end(std::string_view text, bool add_special_tokens,
                                       std::span<const ByteRange> literals, std::size_t max_tokens) const {
  Result<TokenIds> ids = encode_text(text, literals);
  if (!ids) return ids;
  const std::size_t num_added = add_special_tokens ? post_process({}).size() : 0;
  const std::size_t num_kept = std::min(ids->size(), max_tokens - std::min(max_tokens, num_added));
  ids->erase(ids->begin(), ids->end() - static_cast<std::ptrdiff_t>(num_kept));
  return add_special_tokens ? post_process(std::move(*ids)) : ids;
}

Result<TokenIds> Tokenizer::encode_text(std::string_view text, std::span<const ByteRange> literals) const {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorCode::invalid_request,
                "the text has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(kMaxTextBytes));
  }
  if (const std::size_t byte = find_invalid_utf8(text); byte != std::string_view::npos) {
    return fail(ErrorCode::invalid_request, "the text is not valid UTF-8 at byte " + std::to_string(byte));
  }
  if (Status status = check_literals(literals, text.size(), "literals"); !status) return fail(status.error());
  const std::vector<ByteRange> filled = literals_within({0, text.size()}, literals);
  TokenIds ids;
  for (const AddedTokenMatcher::Segment& segment : raw_matcher_.split(text, filled)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view part = text.substr(segment.span.begin, segment.span.end - segment.span.begin);
    const Status status = encode_segment(part, segment.span.begin == 0, literals_within(segment.span, filled), ids);
    if (!status) return fail(status.error());
  }
  return ids;
}

TokenIds Tokenizer::post_process(TokenIds ids) const {
  for (const TemplateSpec& pieces : templates_) {
    TokenIds whole;
    for (const TemplatePiece& piece : pieces) {
      const TokenIds& add = piece.is_text ? ids : piece.ids;
      whole.insert(whole.end(), add.begin(), add.end());
    }
    ids = std::move(whole);
  }
  return ids;
}

Status Tokenizer::encode_segment(std::string_view text, bool at_text_start, std::span<const ByteRange> literals,
                                 TokenIds& ids) const {
  // Most tokenizers search for no added tokens in the normalized text. The places of the literals in it are not needed
  // then.
  if (normalized_matcher_.empty()) literals = {};
  const Result<Normalizer::Output> normalized = normalizer_.apply(text, literals);
  if (!normalized) return fail(normalized.error());
  const bool starts = at_text_start && normalized->keeps_start;
  for (const AddedTokenMatcher::Segment& segment : normalized_matcher_.split(normalized->text, normalized->literals)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const auto [begin, end] = segment.span;
    const Result<Pieces> pieces =
        pre_tokenizer_.apply(normalized->text.substr(begin, end - begin), starts && begin == 0);
    if (!pieces) return fail(pieces.error());
    const Status status = model_->encode_pieces(pieces->buffer, pieces->spans, pieces->at_text_start, ids);
    if (!status) return status;
  }
  return {};
}

std::optional<std::string_view> Tokenizer::decoded_string(TokenId id) const {
  if (const auto added = added_.find(id); added != added_.end()) return added->second.pattern;
  if (model_->has(id)) return model_->token(id);
  return std::nullopt;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  TokenDecoder::State state = start_decoding();
  std::string text;
  for (const TokenId id : ids) decode_next(state, id, skip_special_tokens, text);
  finish_decoding(state, text);
  return text;
}

void Tokenizer::decode_next(TokenDecoder::State& state, TokenId id, bool skip_special_tokens, std::string& out) const {
  if (skip_special_tokens && is_special(id)) return;
  if (const auto token = decoded_string(id)) decoder_.push(state, *token, out);
}

std::string_view Tokenizer::token_text(TokenId id) const {
  if (const auto added = added_.find(id); added != added_.end()) return added->second.token.content;
  return model_->token(id);
}

std::string Tokenizer::token_piece_text(TokenId id) const {
  const auto token = decoded_string(id);
  if (!token) return {};
  // A word before the token, so that decoders which trim the start of a text do not remove this token's space.
  TokenDecoder::State state = start_decoding();
  std::string text;
  decoder_.push(state, "a", text);
  text.clear();
  decoder_.leave_context(state);
  decoder_.push(state, *token, text);
  decoder_.flush(state, text);
  return text;
}

std::optional<std::string> Tokenizer::token_bytes(TokenId id) const {
  const auto token = decoded_string(id);
  if (!token || is_special(id)) return std::nullopt;
  return decoder_.bytes(*token);
}

bool Tokenizer::is_special(TokenId id) const {
  const auto added = added_.find(id);
  return added != added_.end() && added->second.token.special && added->second.pattern == added->second.token.content;
}

std::optional<std::string> Tokenizer::special_text(TokenId id) const {
  if (!is_special(id)) return std::nullopt;
  return added_.find(id)->second.token.content;
}

std::optional<std::string_view> Tokenizer::added_text(TokenId id) const {
  const auto found = added_.find(id);
  if (found == added_.end()) return std::nullopt;
  return found->second.token.content;
}

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const {
  if (const auto added = added_ids_.find(token); added != added_ids_.end()) return added->second;
  return model_->find(token);
}

}  // namespace pagoda::text
