#include "io/model_files/gguf/gguf_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/text/sentencepiece_model.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "io/model_files/sentencepiece_spec.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

using PieceType = SentencePieceProto::PieceType;

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";
constexpr std::size_t kMaxTokens = std::size_t{1} << 22;

enum class Model { bpe, sentencepiece_bpe, sentencepiece_unigram };

// Numbers of token_type in the file. Without types in the file all tokens are undefined.
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

struct Vocabulary {
  std::vector<std::string> tokens;  // by id
  std::vector<TokenType> types;
};

struct SpecialIds {
  std::optional<TokenId> bos, eos, unknown, padding;
  std::optional<TokenId> end_of_turn, end_of_message;
};

tl::unexpected<Error> refuse(const GgufFile& file, std::string_view key, std::string_view reason,
                             ErrorCode code = ErrorCode::bad_file) {
  return file.bad(key, tokenizer_file::one_line(reason), code);
}

// Returns the value of a required key.
template <class T>
Result<T> require(const GgufFile& file, std::string_view key) {
  Result<std::optional<T>> value = file.get<T>(key);
  if (!value) return fail(std::move(value.error()));
  if (!*value) return refuse(file, key, "is missing");
  return std::move(**value);
}

template <class T>
Result<T> get_or(const GgufFile& file, std::string_view key, T otherwise) {
  Result<std::optional<T>> value = file.get<T>(key);
  if (!value) return fail(std::move(value.error()));
  return std::move(*value).value_or(std::move(otherwise));
}

std::string token_id_key(std::string_view name) {
  return "tokenizer.ggml." + std::string(name) + "_token_id";
}

Result<Model> read_model(const GgufFile& file) {
  const Result<std::string_view> name = require<std::string_view>(file, kModelKey);
  if (!name) return fail(name.error());
  if (*name == "gpt2") return Model::bpe;
  if (*name == "llama") return Model::sentencepiece_bpe;
  if (*name == "t5") return Model::sentencepiece_unigram;
  return refuse(file, kModelKey, "is " + quote(*name) + ", which is not supported; gpt2, llama and t5 are",
                ErrorCode::unsupported);
}

std::string wrong_length(std::size_t length, std::size_t num_tokens) {
  return "has " + std::to_string(length) + " entries for " + std::to_string(num_tokens) + " tokens";
}

Status check_tokens(const GgufFile& file, std::span<const std::string> tokens) {
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (text::find_invalid_utf8(tokens[id]) != std::string_view::npos) {
      return refuse(file, kGgufTokensKey, "has a token that is not valid UTF-8, with the id " + std::to_string(id));
    }
    const auto [known, inserted] = ids.emplace(tokens[id], id);
    if (inserted) continue;
    return refuse(file, kGgufTokensKey,
                  "has " + quote(tokens[id]) + " twice, with the ids " + std::to_string(known->second) + " and " +
                      std::to_string(id));
  }
  return {};
}

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  const auto tokens = require<std::vector<std::string_view>>(file, kGgufTokensKey);
  if (!tokens) return fail(tokens.error());
  if (tokens->empty() || tokens->size() > kMaxTokens) {
    return refuse(file, kGgufTokensKey,
                  "has " + std::to_string(tokens->size()) + " tokens, outside 1.." + std::to_string(kMaxTokens));
  }
  const auto types = get_or(file, kTypesKey, std::vector<std::int64_t>(tokens->size()));
  if (!types) return fail(types.error());
  if (types->size() != tokens->size()) return refuse(file, kTypesKey, wrong_length(types->size(), tokens->size()));
  Vocabulary vocabulary{{tokens->begin(), tokens->end()}, {}};
  vocabulary.types.reserve(types->size());
  for (std::size_t id = 0; id < types->size(); ++id) {
    const std::int64_t type = (*types)[id];
    if (type < 0 || type > static_cast<std::int64_t>(TokenType::byte)) {
      return refuse(file, kTypesKey,
                    "has the type " + std::to_string(type) + " for the token with the id " + std::to_string(id) +
                        "; types are 0 to 6");
    }
    const auto given = static_cast<TokenType>(type);
    const bool is_open = given == TokenType::undefined || given == TokenType::user_defined;
    vocabulary.types.push_back(is_open && ends_answer((*tokens)[id]) ? TokenType::control : given);
    if (!vocabulary.tokens[id].empty()) continue;
    // Some files have empty tokens. llama.cpp gives them this name; as unused tokens they never match a text.
    vocabulary.tokens[id] = "[EMPTY_" + std::to_string(id) + "]";
    vocabulary.types[id] = TokenType::unused;
  }
  if (Status status = check_tokens(file, vocabulary.tokens); !status) return fail(status.error());
  return vocabulary;
}

// Where the key names no token, returns `otherwise`, if there is such a token.
Result<std::optional<TokenId>> read_id(const GgufFile& file, std::string_view name, std::size_t num_tokens,
                                       std::optional<TokenId> otherwise) {
  const auto id = gguf_token_id(file, name);
  if (!id) return fail(id.error());
  if (!*id) {
    if (otherwise && static_cast<std::size_t>(*otherwise) >= num_tokens) return std::nullopt;
    return otherwise;
  }
  if (**id < 0 || static_cast<std::uint64_t>(**id) >= num_tokens) {
    return refuse(file, token_id_key(name),
                  "is " + std::to_string(**id) + ", but ids end at " + std::to_string(num_tokens - 1));
  }
  return static_cast<TokenId>(**id);
}

Result<SpecialIds> read_special_ids(const GgufFile& file, Model model, std::size_t num_tokens) {
  SpecialIds ids;
  if (model == Model::sentencepiece_bpe) {
    ids.unknown = 0;
    ids.bos = 1;
    ids.eos = 2;
  } else if (model == Model::sentencepiece_unigram) {
    ids.padding = 0;
    ids.eos = 1;
    ids.unknown = 2;
  }
  const std::pair<std::string_view, std::optional<TokenId>*> named[] = {
      {"bos", &ids.bos},         {"eos", &ids.eos},         {"unknown", &ids.unknown},
      {"padding", &ids.padding}, {"eot", &ids.end_of_turn}, {"eom", &ids.end_of_message}};
  for (const auto& [name, id] : named) {
    const auto read = read_id(file, name, num_tokens, *id);
    if (!read) return fail(read.error());
    *id = *read;
  }
  return ids;
}

// Phi-3 removes the white space after its special tokens. GGUF cannot express this, so it follows from the
// architecture, as in llama.cpp.
bool strips_after_special_tokens(const GgufFile& file, const std::string& token) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  return architecture && *architecture == "phi3" && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

// Tokens that mark an end or a beginning are special, whatever type older programs gave them.
std::vector<text::AddedToken> added_tokens(const Vocabulary& vocabulary, const SpecialIds& ids) {
  std::vector<text::AddedToken> added;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = vocabulary.types[i];
    const bool special = type == TokenType::control || type == TokenType::unknown || id == ids.bos || id == ids.eos ||
                         id == ids.end_of_turn || id == ids.end_of_message;
    if (!special && type != TokenType::user_defined) continue;
    text::AddedToken& token = added.emplace_back();
    token.id = id;
    token.content = vocabulary.tokens[i];
    token.special = special;
  }
  return added;
}

Status add_template(const GgufFile& file, const SpecialIds& ids, bool add_bos, bool add_eos,
                    text::TokenizerSpec& spec) {
  text::TemplateSpec pieces;
  const auto add_if = [&](std::string_view name, bool otherwise, std::optional<TokenId> id) -> Status {
    const std::string key = "tokenizer.ggml.add_" + std::string(name) + "_token";
    const auto wanted = file.get<bool>(key);
    if (!wanted) return fail(wanted.error());
    if (wanted->value_or(false) && !id) {
      return refuse(file, key, "is true, but there is no tokenizer.ggml." + std::string(name) + "_token_id");
    }
    if (wanted->value_or(otherwise) && id) pieces.push_back({false, {*id}});
    return {};
  };
  if (Status status = add_if("bos", add_bos, ids.bos); !status) return status;
  pieces.push_back({true, {}});
  if (Status status = add_if("eos", add_eos, ids.eos); !status) return status;
  if (pieces.size() > 1) spec.post_processors.push_back(std::move(pieces));
  return {};
}

// ---- gpt2

// A merge is two tokens with a space between them; a token may begin with a space.
Status read_merges(const GgufFile& file, text::BpeSpec& bpe) {
  const auto merges = require<std::vector<std::string_view>>(file, kMergesKey);
  if (!merges) return fail(merges.error());
  bpe.merges.reserve(merges->size());
  for (const std::string_view merge : *merges) {
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return refuse(file, kMergesKey, "has " + quote(merge) + ", which is not two tokens with a space between");
    }
    bpe.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

// Old files name no pre-tokenizer; llama.cpp then splits a text as for "default".
Result<const GgufPreTokenizer*> read_pre_tokenizer(const GgufFile& file) {
  const Result<std::string_view> name = get_or<std::string_view>(file, kPreKey, "");
  if (!name) return fail(name.error());
  if (const GgufPreTokenizer* known = find_gguf_pre_tokenizer(name->empty() ? "default" : *name)) return known;
  std::string names;
  for (const std::string_view known : gguf_pre_tokenizer_names()) (names += names.empty() ? "" : ", ") += known;
  return refuse(file, kPreKey, "is " + quote(*name) + ", which is not supported; these are: " + names,
                ErrorCode::unsupported);
}

Result<GgufTokenizer> read_bpe(const GgufFile& file, const Vocabulary& vocabulary, const SpecialIds& ids) {
  const Result<const GgufPreTokenizer*> pre = read_pre_tokenizer(file);
  if (!pre) return fail(pre.error());
  text::TokenizerSpec spec;
  if (Status status = read_merges(file, spec.model); !status) return fail(status.error());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    // Unused tokens fill the vocabulary up to the rows of the embedding; they stand for no text.
    if (vocabulary.types[id] == TokenType::unused) continue;
    spec.model.vocab.emplace_back(vocabulary.tokens[id], static_cast<TokenId>(id));
  }
  spec.model.ignore_merges = (*pre)->ignore_merges;
  spec.normalizers = (*pre)->normalizers;
  spec.pre_tokenizers = (*pre)->pre_tokenizers;
  spec.decoders.emplace().emplace_back(text::ByteLevelDecoder{});
  spec.added_tokens = added_tokens(vocabulary, ids);
  if (Status status = add_template(file, ids, (*pre)->add_bos_token, false, spec); !status) return fail(status.error());
  return GgufTokenizer{std::move(spec), {}};
}

// ---- llama and t5

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         token.substr(3, 2).find_first_not_of("0123456789ABCDEF") == std::string_view::npos;
}

PieceType piece_type(TokenType type, bool marks_an_end, std::string_view token) {
  if (type == TokenType::unknown) return PieceType::unused;
  if (type != TokenType::undefined) return static_cast<PieceType>(type);
  return marks_an_end ? PieceType::control : is_byte_token(token) ? PieceType::byte : PieceType::normal;
}

// The library needs exactly one unknown token. In some files the unknown token is a control token. In others the tokens
// that fill the vocabulary are of type unknown too; the id of the unknown token decides there.
std::vector<PieceType> piece_types(const Vocabulary& vocabulary, const SpecialIds& ids) {
  std::vector<PieceType> types;
  types.reserve(vocabulary.types.size());
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    types.push_back(piece_type(vocabulary.types[i], id == ids.bos || id == ids.eos, vocabulary.tokens[i]));
  }
  if (std::ranges::count(vocabulary.types, TokenType::unknown) == 1) {
    const auto unknown = std::ranges::find(vocabulary.types, TokenType::unknown) - vocabulary.types.begin();
    types[static_cast<std::size_t>(unknown)] = PieceType::unknown;
  } else if (ids.unknown) {
    types[static_cast<std::size_t>(*ids.unknown)] = PieceType::unknown;
  }
  return types;
}

Result<std::vector<float>> read_scores(const GgufFile& file, std::size_t num_tokens) {
  const auto scores = require<std::vector<double>>(file, kScoresKey);
  if (!scores) return fail(scores.error());
  if (scores->size() != num_tokens) return refuse(file, kScoresKey, wrong_length(scores->size(), num_tokens));
  const auto is_finite = [](double score) { return std::abs(score) <= std::numeric_limits<float>::max(); };
  if (const auto bad = std::ranges::find_if_not(*scores, is_finite); bad != scores->end()) {
    return refuse(
        file, kScoresKey,
        "has a score that is not a finite number, for the token with the id " + std::to_string(bad - scores->begin()));
  }
  return std::vector<float>(scores->begin(), scores->end());
}

Result<std::string> read_charsmap(const GgufFile& file) {
  const auto numbers = get_or(file, kCharsmapKey, std::vector<std::int64_t>{});
  if (!numbers) return fail(numbers.error());
  std::string charsmap;
  charsmap.reserve(numbers->size());
  for (const std::int64_t number : *numbers) {
    if (number < -128 || number > 255) return refuse(file, kCharsmapKey, "is not a list of bytes");
    charsmap += static_cast<char>(number);
  }
  if (!charsmap.empty() && !is_valid_charsmap(charsmap)) return refuse(file, kCharsmapKey, "is damaged");
  return charsmap;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

Result<GgufTokenizer> read_sentencepiece(const GgufFile& file, Model kind, Vocabulary vocabulary,
                                         const SpecialIds& ids) {
  const bool unigram = kind == Model::sentencepiece_unigram;
  SentencePieceProto proto;
  proto.algorithm = unigram ? SentencePieceProto::Algorithm::unigram : SentencePieceProto::Algorithm::bpe;
  const auto scores = read_scores(file, vocabulary.tokens.size());
  if (!scores) return fail(scores.error());
  const auto charsmap = unigram ? read_charsmap(file) : std::string();
  if (!charsmap) return fail(charsmap.error());
  const auto add_space = get_or(file, "tokenizer.ggml.add_space_prefix", !unigram);
  if (!add_space) return fail(add_space.error());
  const auto remove_spaces = get_or(file, "tokenizer.ggml.remove_extra_whitespaces", false);
  if (!remove_spaces) return fail(remove_spaces.error());
  proto.precompiled_charsmap = *charsmap;
  proto.add_dummy_prefix = *add_space;
  // llama.cpp does not read this key for "llama".
  proto.remove_extra_whitespaces = unigram && *remove_spaces;

  std::vector<text::AddedToken> added = added_tokens(vocabulary, ids);
  // User-defined tokens such as runs of spaces have plain spaces in the file. The library finds them itself, in its
  // escaped text, so they are not added tokens.
  std::erase_if(added,
                [](const auto& token) { return !token.special && token.content.find(" ") != std::string::npos; });
  const std::vector<PieceType> types = piece_types(vocabulary, ids);
  for (std::size_t id = 0; id < types.size(); ++id) {
    if (types[id] == PieceType::user_defined) replace_all(vocabulary.tokens[id], " ", "\u2581");
    proto.pieces.push_back({vocabulary.tokens[id], (*scores)[id], types[id]});
  }
  proto.byte_fallback = std::ranges::find(types, PieceType::byte) != types.end();

  std::string bytes = serialize(proto);
  auto model = text::SentencePieceModel::create(bytes, text::SentencePieceModel::SpaceBefore::each_text);
  if (!model) return refuse(file, kGgufTokensKey, "is wrong: " + model.error().message);
  text::TokenizerSpec spec = sentencepiece_spec(std::move(*model));
  spec.added_tokens = std::move(added);
  for (text::AddedToken& token : spec.added_tokens) {
    token.rstrip = strips_after_special_tokens(file, token.content);
  }
  if (Status status = add_template(file, ids, !unigram, unigram, spec); !status) return fail(status.error());
  return GgufTokenizer{std::move(spec), std::move(bytes)};
}

}  // namespace

bool ends_answer(std::string_view token) {
  // special_eog_ids of llama.cpp's src/llama-vocab.cpp, without the tokens of code that is filled in.
  constexpr std::array<std::string_view, 11> kEnds{
      "<|eot_id|>",    "<|im_end|>", "<|end|>", "<|eom_id|>", "<|endoftext|>",     "<|end_of_text|>",
      "<end_of_turn>", "<EOT>",      "_<EOT>",  "[EOT]",      "<end_of_utterance>"};
  return std::ranges::find(kEnds, token) != kEnds.end();
}

Result<std::optional<std::int64_t>> gguf_token_id(const GgufFile& file, std::string_view name) {
  auto id = file.get<std::int64_t>(token_id_key(name));
  if (id && (*id == -1 || *id == std::numeric_limits<std::uint32_t>::max())) id->reset();
  return id;
}

Result<GgufTokenizer> read_gguf_tokenizer_and_model(const GgufFile& file) {
  const Result<Model> model = read_model(file);
  if (!model) return fail(model.error());
  Result<Vocabulary> vocabulary = read_vocabulary(file);
  if (!vocabulary) return fail(vocabulary.error());
  const Result<SpecialIds> ids = read_special_ids(file, *model, vocabulary->tokens.size());
  if (!ids) return fail(ids.error());
  if (*model == Model::bpe) return read_bpe(file, *vocabulary, *ids);
  return read_sentencepiece(file, *model, std::move(*vocabulary), *ids);
}

Result<text::TokenizerSpec> read_gguf_tokenizer(const GgufFile& file) {
  auto tokenizer = read_gguf_tokenizer_and_model(file);
  if (!tokenizer) return fail(std::move(tokenizer.error()));
  return std::move(tokenizer->spec);
}

Result<std::shared_ptr<const text::Tokenizer>> load_gguf_tokenizer(const GgufFile& file) {
  const Result<text::TokenizerSpec> spec = read_gguf_tokenizer(file);
  if (!spec) return fail(spec.error());
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = text::Tokenizer::create(*spec);
  if (tokenizer) return tokenizer;
  const Error& error = tokenizer.error();
  return refuse(file, error.param.starts_with("model.merges") ? kMergesKey : kGgufTokensKey,
                "is wrong: " + error.message);
}

Result<std::map<std::string, std::string>> gguf_special_tokens(const GgufFile& file) {
  const Result<Model> model = read_model(file);
  if (!model) return fail(model.error());
  const Result<Vocabulary> vocabulary = read_vocabulary(file);
  if (!vocabulary) return fail(vocabulary.error());
  const Result<SpecialIds> ids = read_special_ids(file, *model, vocabulary->tokens.size());
  if (!ids) return fail(ids.error());
  std::map<std::string, std::string> tokens;
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id) tokens.emplace(name, vocabulary->tokens[static_cast<std::size_t>(*id)]);
  };
  add("bos_token", ids->bos);
  add("eos_token", ids->eos);
  add("unk_token", ids->unknown);
  add("pad_token", ids->padding);
  return tokens;
}

}  // namespace pagoda::io
