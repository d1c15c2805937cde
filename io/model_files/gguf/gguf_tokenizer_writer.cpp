#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "io/model_files/chat_template_files.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/scores_of_merges.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "io/model_files/sentencepiece_spec.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "io/model_files/tokenizer_loader.hpp"

namespace pagoda::io {
namespace {

using OptionalId = std::optional<TokenId>;

/// Numbers of token_type.
constexpr std::int32_t kNormalToken = 1;
constexpr std::int32_t kUnknownToken = 2;
constexpr std::int32_t kControlTokenType = 3;
constexpr std::int32_t kUserDefinedToken = 4;
constexpr std::int32_t kUnusedToken = 5;
constexpr std::int32_t kByteToken = 6;

constexpr const char* kSpace = "\u2581";  ///< character that stands for a space in SentencePiece's tokens

bool has_space(std::string_view piece) {
  return piece.find(kSpace) != piece.npos;
}

bool is_user_defined(const SentencePieceProto::Piece& piece) {
  return piece.type == SentencePieceProto::PieceType::user_defined;
}

std::set<TokenId> ids_of(const std::vector<text::AddedToken>& tokens) {
  std::set<TokenId> ids;
  for (const text::AddedToken& token : tokens) ids.insert(token.id);
  return ids;
}

/// Adds the user-defined tokens without a space: GGUF's readers look for these before the model sees a text.
void add_user_defined_tokens(const SentencePieceProto& proto, std::vector<text::AddedToken>& tokens) {
  const std::set<TokenId> added = ids_of(tokens);
  for (std::size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!is_user_defined(proto.pieces[i]) || has_space(proto.pieces[i].text) || added.contains(id)) continue;
    text::AddedToken& token = tokens.emplace_back();
    token.id = id;
    token.content = proto.pieces[i].text;
  }
}

/// In a GGUF file user-defined tokens have plain spaces.
std::string with_plain_spaces(std::string text) {
  const std::string_view space = kSpace;
  for (std::size_t at = text.find(space); at != text.npos; at = text.find(space, at + 1)) {
    text.replace(at, space.size(), 1, ' ');
  }
  return text;
}

bool is_byte_piece(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

/// Returns the normalizers of BPE made from a SentencePiece model, with or without a space before a text.
std::vector<text::NormalizerSpec> sentencepiece_normalizers(bool space_before) {
  std::vector<text::NormalizerSpec> normalizers;
  if (space_before) normalizers.emplace_back(text::PrependNormalizer{kSpace});
  normalizers.emplace_back(text::ReplaceNormalizer{{" ", false}, kSpace});
  return normalizers;
}

/// Ids that a tokenizer puts before and after a text.
struct AroundText {
  TokenIds before;
  TokenIds after;
};

AroundText around_text(const text::TokenizerSpec& spec) {
  AroundText around;
  for (const text::TemplateSpec& pieces : spec.post_processors) {
    const auto text = std::ranges::find(pieces, true, &text::TemplatePiece::is_text);
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
      TokenIds& ids = piece < text ? around.before : around.after;
      ids.insert(ids.end(), piece->ids.begin(), piece->ids.end());
    }
  }
  return around;
}

class TokenizerWriter {
 public:
  TokenizerWriter(const FolderTokenizer& tokenizer, const TokenizerConfig& config, const models::ModelSpec& model,
                  GgufMetadata& metadata)
      : spec_(tokenizer.spec), config_(config), file_(tokenizer.file), model_(model), metadata_(metadata) {}

  Status write(const std::vector<chat::NamedTemplate>& templates) {
    Status status = spec_.sentencepiece != nullptr ? write_sentencepiece() : write_bpe();
    if (status) status = write_special_ids(templates);
    return status;
  }

 private:
  Status refuse(std::string_view key, const std::string& reason) const {
    return fail(ErrorCode::unsupported, file_.string() + ": " + std::string(key) + ": " + reason, std::string(key));
  }

  /// Adds an unused token for each row of the embedding.
  void begin_vocabulary() {
    const auto size = static_cast<std::size_t>(model_.vocab_size);
    types_.assign(size, kUnusedToken);
    for (std::size_t id = 0; id < size; ++id) tokens_.push_back("[PAD" + std::to_string(id) + "]");
  }

  Status put(TokenId id, std::string token, std::int32_t type) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
      return refuse("model.vocab", "the id " + std::to_string(id) + " of " + quote(token) + " is beyond the " +
                                       std::to_string(tokens_.size()) + " rows of the embedding");
    }
    tokens_[static_cast<std::size_t>(id)] = std::move(token);
    types_[static_cast<std::size_t>(id)] = type;
    return {};
  }

  /// `unknown`: the token that stands for text without tokens; may be empty.
  Status put_added_tokens(std::string_view unknown) {
    for (const text::AddedToken& token : spec_.added_tokens) {
      const bool is_unknown = !unknown.empty() && token.content == unknown;
      const auto type = is_unknown ? kUnknownToken : token.special ? kControlTokenType : kUserDefinedToken;
      if (Status status = put(token.id, token.content, type); !status) return status;
    }
    return {};
  }

  Status write_bpe() {
    begin_vocabulary();
    for (const auto& [token, id] : spec_.model.vocab) {
      const bool is_byte = spec_.model.byte_fallback && is_byte_piece(token);
      if (Status status = put(id, token, is_byte ? kByteToken : kNormalToken); !status) return status;
    }
    const std::string unknown = spec_.model.byte_fallback ? spec_.model.unk_token.value_or("") : "";
    if (Status status = put_added_tokens(unknown); !status) return status;
    return spec_.model.byte_fallback ? write_sentencepiece_bpe() : write_byte_level_bpe();
  }

  Status write_byte_level_bpe() {
    const std::string_view pre =
        gguf_pre_tokenizer_name(spec_.normalizers, spec_.pre_tokenizers, spec_.model.ignore_merges);
    if (pre.empty()) {
      return refuse("pre_tokenizer", "GGUF has no name for this pre-tokenizer with its normalizer and ignore_merges");
    }
    std::vector<std::string> merges;
    for (const auto& [left, right] : spec_.model.merges) merges.push_back(left + " " + right);
    metadata_.set("tokenizer.ggml.model", "gpt2");
    metadata_.set("tokenizer.ggml.pre", pre);
    write_tokens();
    metadata_.set("tokenizer.ggml.merges", merges);
    return {};
  }

  Status write_sentencepiece_bpe() {
    const bool space_before = spec_.normalizers == sentencepiece_normalizers(true);
    if (!space_before && spec_.normalizers != sentencepiece_normalizers(false)) {
      return refuse("normalizer", "is not that of a SentencePiece model");
    }
    if (!spec_.pre_tokenizers.empty()) return refuse("pre_tokenizer", "is not that of a SentencePiece model");
    std::vector<bool> merged(tokens_.size());
    for (std::size_t id = 0; id < merged.size(); ++id) merged[id] = types_[id] == kNormalToken;
    const auto scores = scores_of_merges(tokens_, merged, spec_.model.merges);
    if (!scores) return refuse("model.merges", scores.error().message);
    write_scored_tokens("llama", *scores, space_before);
    return {};
  }

  /// Returns an error for an option of the SentencePiece model that GGUF cannot express.
  Status check_options(const SentencePieceProto& proto) const {
    const bool is_bpe = proto.algorithm == SentencePieceProto::Algorithm::bpe;
    if (!is_bpe && proto.algorithm != SentencePieceProto::Algorithm::unigram) {
      return refuse("trainer_spec.model_type", "is neither BPE nor unigram");
    }
    if (!proto.escape_whitespaces) return refuse("normalizer_spec.escape_whitespaces", "GGUF does not support false");
    if (proto.treat_whitespace_as_suffix) {
      return refuse("trainer_spec.treat_whitespace_as_suffix", "GGUF does not support true");
    }
    if (is_bpe && !proto.precompiled_charsmap.empty()) {
      return refuse("normalizer_spec.precompiled_charsmap", "GGUF's llama tokenizers do not rewrite characters");
    }
    if (is_bpe && proto.remove_extra_whitespaces) {
      return refuse("normalizer_spec.remove_extra_whitespaces", "GGUF's llama tokenizers do not remove spaces");
    }
    if (proto.add_dummy_prefix &&
        sentencepiece_space_before(config_) == text::SentencePieceModel::SpaceBefore::first_text) {
      return refuse("legacy",
                    "false (in tokenizer_config.json) puts a space only before the start of a text, which GGUF does "
                    "not support");
    }
    return check_user_defined_tokens(proto);
  }

  /// GGUF's readers cut a text at user-defined tokens. SentencePiece's BPE does so too. But if the model puts a space
  /// before a text, GGUF's readers would put a space before each of the pieces.
  Status check_user_defined_tokens(const SentencePieceProto& proto) const {
    const bool are_cut_out = proto.algorithm == SentencePieceProto::Algorithm::bpe && !puts_space_before(proto);
    const std::set<TokenId> added = ids_of(spec_.added_tokens);  // added tokens are cut out in any case
    for (std::size_t i = 0; i < proto.pieces.size(); ++i) {
      const SentencePieceProto::Piece& piece = proto.pieces[i];
      if (!is_user_defined(piece) || added.contains(static_cast<TokenId>(i))) continue;
      const std::string text = with_plain_spaces(std::string(piece.text));
      const bool is_run_of_spaces = text.find_first_not_of(' ') == text.npos;
      if (is_run_of_spaces || (are_cut_out && !has_space(piece.text))) continue;
      return refuse("pieces", "GGUF cannot express how the user-defined " + quote(piece.text) + " is matched");
    }
    return {};
  }

  bool puts_space_before(const SentencePieceProto& proto) const {
    return proto.add_dummy_prefix && sentencepiece_space_before(config_) != text::SentencePieceModel::SpaceBefore::none;
  }

  Status write_sentencepiece() {
    const auto bytes = read_sentencepiece_model(file_);
    if (!bytes) return fail(bytes.error());
    const auto proto = parse_sentencepiece_proto(*bytes);
    if (!proto) return fail(proto.error());
    if (Status status = check_options(*proto); !status) return status;
    begin_vocabulary();
    std::vector<float> scores(tokens_.size());
    for (std::size_t id = 0; id < proto->pieces.size(); ++id) {
      const auto& [piece, score, type] = proto->pieces[id];
      std::string text(piece);
      if (is_user_defined(proto->pieces[id])) text = with_plain_spaces(std::move(text));
      // GGUF's types have SentencePiece's numbers.
      Status status = put(static_cast<TokenId>(id), std::move(text), static_cast<std::int32_t>(type));
      if (!status) return status;
      scores[id] = score;
    }
    const OptionalId unknown = spec_.sentencepiece->unk_id();
    Status status = put_added_tokens(unknown ? spec_.sentencepiece->token(*unknown) : std::string_view());
    if (!status) return status;
    const bool is_unigram = proto->algorithm == SentencePieceProto::Algorithm::unigram;
    write_scored_tokens(is_unigram ? "t5" : "llama", scores, puts_space_before(*proto));
    if (!is_unigram) return {};
    metadata_.set("tokenizer.ggml.remove_extra_whitespaces", proto->remove_extra_whitespaces);
    const auto charsmap = std::as_bytes(std::span(proto->precompiled_charsmap));
    if (charsmap.empty()) return {};
    metadata_.set("tokenizer.ggml.precompiled_charsmap",
                  std::span(reinterpret_cast<const std::uint8_t*>(charsmap.data()), charsmap.size()));
    return {};
  }

  void write_scored_tokens(const char* model, const std::vector<float>& scores, bool space_before) {
    metadata_.set("tokenizer.ggml.model", model);
    metadata_.set("tokenizer.ggml.pre", "default");
    write_tokens();
    metadata_.set("tokenizer.ggml.scores", scores);
    metadata_.set("tokenizer.ggml.add_space_prefix", space_before);
  }

  void write_tokens() {
    metadata_.set(kGgufTokensKey, tokens_);
    metadata_.set("tokenizer.ggml.token_type", types_);
  }

  OptionalId id_of(const text::AddedToken* token) const {
    if (token == nullptr) return std::nullopt;
    const auto found = std::ranges::find(tokens_, token->content);
    if (found == tokens_.end()) return std::nullopt;
    return static_cast<TokenId>(found - tokens_.begin());
  }

  void write_id(const char* name, OptionalId id) {
    if (id) metadata_.set(std::string("tokenizer.ggml.") + name + "_token_id", static_cast<std::uint32_t>(*id));
  }

  /// Returns the id of a special token that the config names, else that of the SentencePiece model.
  OptionalId special_id(const char* key, OptionalId (text::SentencePieceModel::*otherwise)() const) const {
    const OptionalId id = id_of(config_.special_token(key));
    return id || spec_.sentencepiece == nullptr ? id : (spec_.sentencepiece.get()->*otherwise)();
  }

  Status write_special_ids(const std::vector<chat::NamedTemplate>& templates) {
    const AroundText around = around_text(spec_);
    OptionalId bos = special_id("bos_token", &text::SentencePieceModel::bos_id);
    if (!bos && !around.before.empty()) bos = around.before.front();
    // bos_token of config.json alone is not written if a template uses bos_token: the template would see a new
    // variable.
    const bool is_asked_for = std::ranges::any_of(
        templates, [](const auto& each) { return each.source.find("bos_token") != std::string::npos; });
    if (!bos && !is_asked_for) bos = model_.bos_token_id;
    OptionalId eos = special_id("eos_token", &text::SentencePieceModel::eos_id);
    if (!eos && !model_.eos_token_ids.empty()) eos = model_.eos_token_ids.front();
    write_id("bos", bos);
    write_id("eos", eos);
    TokenIds other_ends = model_.eos_token_ids;
    std::erase_if(other_ends, [&](TokenId id) { return id == eos; });
    if (!other_ends.empty()) write_id("eot", other_ends[0]);
    if (other_ends.size() > 1) write_id("eom", other_ends[1]);
    write_id("unknown", special_id("unk_token", &text::SentencePieceModel::unk_id));
    write_id("padding", id_of(config_.special_token("pad_token")));
    const auto is_only = [](const TokenIds& ids, OptionalId id) {
      return ids.empty() || (ids.size() == 1 && ids.front() == id);
    };
    if (!is_only(around.before, bos) || !is_only(around.after, eos)) {
      return refuse("post_processor",
                    "adds tokens to a text other than one BOS token before it and one EOS token after it");
    }
    metadata_.set("tokenizer.ggml.add_bos_token", !around.before.empty());
    metadata_.set("tokenizer.ggml.add_eos_token", !around.after.empty());
    return {};
  }

  const text::TokenizerSpec& spec_;
  const TokenizerConfig& config_;
  const std::filesystem::path file_;
  const models::ModelSpec& model_;
  GgufMetadata& metadata_;
  std::vector<std::string> tokens_;  // by id
  std::vector<std::int32_t> types_;  // by id
};

void write_templates(const std::vector<chat::NamedTemplate>& templates, GgufMetadata& metadata) {
  std::vector<std::string> names;
  for (const auto& each : templates) {
    if (each.name == chat::NamedTemplate().name) {
      metadata.set(kGgufTemplateKey, each.source);
    } else {
      names.push_back(each.name);
      metadata.set(std::string(kGgufTemplateKey) + "." + each.name, each.source);
    }
  }
  if (!names.empty()) metadata.set("tokenizer.chat_templates", names);
}

/// Returns the added tokens by id. With Unicode normal forms as normalizers, an ASCII token is found before and after
/// normalization alike, so its `normalized` is set to false.
std::vector<text::AddedToken> comparable_tokens(const text::TokenizerSpec& spec) {
  const bool keeps_ascii = std::ranges::all_of(spec.normalizers, [](const text::NormalizerSpec& normalizer) {
    return std::holds_alternative<text::UnicodeNormalizer>(normalizer);
  });
  auto tokens = spec.added_tokens;
  std::ranges::sort(tokens, {}, &text::AddedToken::id);
  for (text::AddedToken& token : tokens) {
    const bool is_ascii = std::ranges::all_of(token.content, [](char c) { return static_cast<signed char>(c) >= 0; });
    if (keeps_ascii && (is_ascii || spec.normalizers.empty())) token.normalized = false;
  }
  return tokens;
}

}  // namespace

Status write_gguf_tokenizer(const std::filesystem::path& folder, const models::ModelSpec& spec,
                            GgufMetadata& metadata) {
  const auto tokenizer = read_folder_tokenizer(folder);
  if (!tokenizer) return fail(tokenizer.error());
  const auto config = load_tokenizer_config(folder);
  if (!config) return fail(config.error());
  const auto templates = folder_chat_templates(folder);
  if (!templates) return fail(templates.error());
  if (Status status = TokenizerWriter(*tokenizer, *config, spec, metadata).write(*templates); !status) return status;
  write_templates(*templates, metadata);
  return {};
}

Status check_gguf_tokenizer(const std::filesystem::path& folder, const text::TokenizerSpec& written) {
  auto tokenizer = read_folder_tokenizer(folder);
  if (!tokenizer) return fail(std::move(tokenizer.error()));
  const std::filesystem::path& file = tokenizer->file;
  text::TokenizerSpec& wanted = tokenizer->spec;
  if (wanted.sentencepiece != nullptr) {
    const auto bytes = read_sentencepiece_model(file);
    if (!bytes) return fail(bytes.error());
    const auto proto = parse_sentencepiece_proto(*bytes);
    if (!proto) return fail(proto.error());
    add_user_defined_tokens(*proto, wanted.added_tokens);
  }
  return check_same_tokens(wanted, file.string(), written);
}

Status check_same_tokens(const text::TokenizerSpec& wanted, std::string_view file, const text::TokenizerSpec& written,
                         std::string_view form) {
  const auto refuse = [&](const char* key, const std::string& reason) {
    return fail(ErrorCode::unsupported,
                std::string(file).append(": ").append(key).append(": ").append(reason).append(" in ").append(form),
                key);
  };
  const auto tokens = comparable_tokens(wanted);
  const auto written_tokens = comparable_tokens(written);
  const auto [one, other] = std::ranges::mismatch(tokens, written_tokens);
  if (one != tokens.end() || other != written_tokens.end()) {
    const std::string& content = one != tokens.end() ? one->content : other->content;
    return refuse("added_tokens", "the matching of " + quote(content) + " cannot be expressed");
  }
  if (wanted.decoders != written.decoders) return refuse("decoder", "cannot be expressed");
  const AroundText around = around_text(wanted);
  const AroundText around_written = around_text(written);
  if (around.before != around_written.before || around.after != around_written.after) {
    return refuse("post_processor", "cannot be expressed");
  }
  return {};
}

}  // namespace pagoda::io
