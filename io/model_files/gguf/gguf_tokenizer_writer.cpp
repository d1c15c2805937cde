#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "io/model_files/chat_template_files.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"
#include "io/model_files/gguf/scores_of_merges.hpp"
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

constexpr const char* kSpace = "\u2581";  ///< what stands for a space in SentencePiece's tokens

bool is_byte_piece(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

/// The normalizers of BPE made of a SentencePiece model: a space in front of a text, or none.
std::vector<text::NormalizerSpec> sentencepiece_normalizers(bool space_before) {
  std::vector<text::NormalizerSpec> normalizers;
  if (space_before) normalizers.emplace_back(text::PrependNormalizer{kSpace});
  normalizers.emplace_back(text::ReplaceNormalizer{{" ", false}, kSpace});
  return normalizers;
}

/// The ids that a tokenizer puts in front of a text and behind it.
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
  TokenizerWriter(const FolderTokenizer& tokenizer, const models::ModelSpec& model, GgufMetadata& metadata)
      : spec_(tokenizer.spec), file_(tokenizer.file.string()), model_(model), metadata_(metadata) {}

  Status write(const TokenizerConfig& config, const std::vector<chat::NamedTemplate>& templates) {
    Status status = fill_vocabulary();
    if (status) status = write_model();
    if (status) status = write_special_ids(config, templates);
    return status;
  }

 private:
  Status refuse(std::string_view key, const std::string& reason) const {
    return fail(ErrorCode::unsupported, file_ + ": " + std::string(key) + ": " + reason, std::string(key));
  }

  Status fill_vocabulary() {
    const auto size = static_cast<std::size_t>(model_.vocab_size);
    types_.assign(size, kUnusedToken);
    for (std::size_t id = 0; id < size; ++id) tokens_.push_back("[PAD" + std::to_string(id) + "]");
    const auto put = [&](TokenId id, const std::string& token, std::int32_t type) -> Status {
      if (id < 0 || static_cast<std::size_t>(id) >= size) {
        return refuse("model.vocab", "the id " + std::to_string(id) + " of " + quote(token) + " is beyond the " +
                                         std::to_string(size) + " rows of the embedding");
      }
      tokens_[static_cast<std::size_t>(id)] = token;
      types_[static_cast<std::size_t>(id)] = type;
      return {};
    };
    for (const auto& [token, id] : spec_.model.vocab) {
      const bool is_byte = spec_.model.byte_fallback && is_byte_piece(token);
      if (Status status = put(id, token, is_byte ? kByteToken : kNormalToken); !status) return status;
    }
    for (const text::AddedToken& token : spec_.added_tokens) {
      const bool is_unknown = spec_.model.byte_fallback && token.content == spec_.model.unk_token;
      const auto type = is_unknown ? kUnknownToken : token.special ? kControlTokenType : kUserDefinedToken;
      if (Status status = put(token.id, token.content, type); !status) return status;
    }
    return {};
  }

  Status write_model() {
    if (spec_.sentencepiece != nullptr) {
      return refuse("tokenizer", "only a tokenizer.json and a vocab.json with merges.txt can be written as GGUF");
    }
    if (spec_.model.byte_fallback) return write_sentencepiece_bpe();
    const std::string_view pre =
        gguf_pre_tokenizer_name(spec_.normalizers, spec_.pre_tokenizers, spec_.model.ignore_merges);
    if (pre.empty()) {
      return refuse("pre_tokenizer", "GGUF has no name for this one together with its normalizer and ignore_merges");
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
    metadata_.set("tokenizer.ggml.model", "llama");
    metadata_.set("tokenizer.ggml.pre", "default");
    write_tokens();
    metadata_.set("tokenizer.ggml.scores", *scores);
    metadata_.set("tokenizer.ggml.add_space_prefix", space_before);
    return {};
  }

  void write_tokens() {
    metadata_.set("tokenizer.ggml.tokens", tokens_);
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

  Status write_special_ids(const TokenizerConfig& config, const std::vector<chat::NamedTemplate>& templates) {
    const AroundText around = around_text(spec_);
    OptionalId bos = id_of(config.special_token("bos_token"));
    if (!bos && !around.before.empty()) bos = around.before.front();
    // A name that only config.json knows would be a new variable for the templates.
    const bool is_asked_for = std::ranges::any_of(
        templates, [](const auto& each) { return each.source.find("bos_token") != std::string::npos; });
    if (!bos && !is_asked_for) bos = model_.bos_token_id;
    OptionalId eos = id_of(config.special_token("eos_token"));
    if (!eos && !model_.eos_token_ids.empty()) eos = model_.eos_token_ids.front();
    write_id("bos", bos);
    write_id("eos", eos);
    TokenIds other_ends = model_.eos_token_ids;
    std::erase_if(other_ends, [&](TokenId id) { return id == eos; });
    if (!other_ends.empty()) write_id("eot", other_ends[0]);
    if (other_ends.size() > 1) write_id("eom", other_ends[1]);
    write_id("unknown", id_of(config.special_token("unk_token")));
    write_id("padding", id_of(config.special_token("pad_token")));
    const auto is_only = [](const TokenIds& ids, OptionalId id) {
      return ids.empty() || (ids.size() == 1 && ids.front() == id);
    };
    if (!is_only(around.before, bos) || !is_only(around.after, eos)) {
      return refuse("post_processor", "puts other tokens around a text than one that begins and one that ends it");
    }
    metadata_.set("tokenizer.ggml.add_bos_token", !around.before.empty());
    metadata_.set("tokenizer.ggml.add_eos_token", !around.after.empty());
    return {};
  }

  const text::TokenizerSpec& spec_;
  const std::string file_;
  const models::ModelSpec& model_;
  GgufMetadata& metadata_;
  std::vector<std::string> tokens_;  // by id
  std::vector<std::int32_t> types_;  // likewise
};

void write_templates(const std::vector<chat::NamedTemplate>& templates, GgufMetadata& metadata) {
  constexpr const char* kTemplateKey = "tokenizer.chat_template";
  std::vector<std::string> names;
  for (const auto& each : templates) {
    if (each.name == chat::NamedTemplate().name) {
      metadata.set(kTemplateKey, each.source);
    } else {
      names.push_back(each.name);
      metadata.set(std::string(kTemplateKey) + "." + each.name, each.source);
    }
  }
  if (!names.empty()) metadata.set("tokenizer.chat_templates", names);
}

/// By id. Whether a token is looked for before or behind normalization makes no difference to one of ASCII, where the
/// normalizer is one of Unicode's forms.
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
  if (Status status = TokenizerWriter(*tokenizer, spec, metadata).write(*config, *templates); !status) return status;
  write_templates(*templates, metadata);
  return {};
}

Status check_same_tokens(const text::TokenizerSpec& wanted, std::string_view file, const text::TokenizerSpec& written) {
  const auto refuse = [&](const char* key, const std::string& reason) {
    return fail(ErrorCode::unsupported, std::string(file) + ": " + key + ": " + reason + " in GGUF", key);
  };
  const auto tokens = comparable_tokens(wanted);
  const auto written_tokens = comparable_tokens(written);
  const auto [one, other] = std::ranges::mismatch(tokens, written_tokens);
  if (one != tokens.end() || other != written_tokens.end()) {
    const std::string& content = one != tokens.end() ? one->content : other->content;
    return refuse("added_tokens", "how " + quote(content) + " is looked for cannot be said");
  }
  if (wanted.decoders != written.decoders) return refuse("decoder", "cannot be said");
  const AroundText around = around_text(wanted);
  const AroundText around_written = around_text(written);
  if (around.before != around_written.before || around.after != around_written.after) {
    return refuse("post_processor", "cannot be said");
  }
  return {};
}

}  // namespace pagoda::io
