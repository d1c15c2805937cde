#include "io/model_files/gguf/folder_tokenizer_of_gguf.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "engine/text/tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/model_files/bpe_of_sentencepiece.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "io/model_files/sentencepiece_spec.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "io/model_files/tokenizer_json_writer.hpp"

namespace pagoda::io {
namespace {

using nlohmann::ordered_json;

/// Returns chat_template of tokenizer_config.json: a text, or a list of texts with names. Null where there is none.
Result<ordered_json> chat_templates(const GgufFile& file) {
  ordered_json named = ordered_json::array();
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kGgufTemplateKey)) continue;
    const std::string_view suffix = std::string_view(key).substr(kGgufTemplateKey.size());
    if (!suffix.empty() && !suffix.starts_with('.')) continue;  // another key, for example tokenizer.chat_templates
    const auto text = file.get<std::string_view>(key);
    if (!text) return fail(text.error());
    if (text::find_invalid_utf8(**text) != std::string_view::npos) {
      return file.bad(key, "is not valid UTF-8, so JSON cannot hold it", ErrorCode::unsupported);
    }
    const std::string name = suffix.empty() ? chat::NamedTemplate().name : std::string(suffix.substr(1));
    named.push_back({{"name", name}, {"template", **text}});
  }
  if (named.empty()) return ordered_json();
  const bool is_alone = named.size() == 1 && named.front()["name"] == chat::NamedTemplate().name;
  return is_alone ? named.front()["template"] : named;
}

ordered_json token_json(const text::AddedToken& token) {
  return {{"content", token.content}, {"lstrip", token.lstrip},           {"normalized", token.normalized},
          {"rstrip", token.rstrip},   {"single_word", token.single_word}, {"special", token.special}};
}

/// Writes to `config` the properties of `spec` that a tokenizer.model does not contain.
void describe_model(const text::TokenizerSpec& spec, ordered_json& config) {
  bool begins = false;
  bool ends = false;
  for (const text::TemplateSpec& pieces : spec.post_processors) {
    begins = begins || !pieces.front().is_text;
    ends = ends || !pieces.back().is_text;
  }
  config["add_bos_token"] = begins;
  config["add_eos_token"] = ends;
  config["legacy"] = true;  // a space before each stretch of text
  config["sp_model_kwargs"] = ordered_json::object();
  ordered_json tokens = ordered_json::object();
  for (const text::AddedToken& token : spec.added_tokens) tokens[std::to_string(token.id)] = token_json(token);
  config["added_tokens_decoder"] = std::move(tokens);
}

std::string with_spaces(std::string_view token) {
  std::string text(token);
  for (std::size_t at = text.find(kSentencePieceSpace); at != text.npos; at = text.find(kSentencePieceSpace, at + 1)) {
    text.replace(at, kSentencePieceSpace.size(), 1, ' ');
  }
  return text;
}

/// Returns a text that the two tokenizers cut differently; nothing where none was found. The texts are each token
/// alone, repeated, and beside the previous token.
std::optional<std::string> cut_differently(const SentencePieceProto& proto, const text::Tokenizer& one,
                                           const text::Tokenizer& other) {
  std::string before;
  for (const SentencePieceProto::Piece& piece : proto.pieces) {
    if (piece.type != SentencePieceProto::PieceType::normal) continue;
    const std::string token = with_spaces(piece.text);
    for (const std::string& text : {token, token + token + token, before + token, token + before}) {
      const auto ids = one.encode(text, true);
      const auto other_ids = other.encode(text, true);
      if (!ids || !other_ids || *ids != *other_ids) return text;
    }
    before = token;
  }
  return std::nullopt;
}

/// Returns the tokenizer.json of a SentencePiece model; `of_scores` is its tokenizer by scores. Errors: unsupported,
/// with the reason alone.
Result<std::string> json_of_sentencepiece(const GgufTokenizer& tokenizer, const text::Tokenizer& of_scores) {
  const auto proto = parse_sentencepiece_proto(tokenizer.sentencepiece);
  if (!proto) return fail(proto.error());
  auto spec = bpe_of_sentencepiece(*proto);
  if (!spec) return fail(std::move(spec.error()));
  spec->added_tokens = tokenizer.spec.added_tokens;
  spec->post_processors = tokenizer.spec.post_processors;
  spec->decoders = tokenizer.spec.decoders;
  const auto of_merges = text::Tokenizer::create(*spec);
  if (!of_merges) return fail(of_merges.error());
  if (const auto text = cut_differently(*proto, of_scores, **of_merges)) {
    return fail(ErrorCode::unsupported, "merges cut " + quote(*text) + " otherwise than scores do");
  }
  return write_tokenizer_json(*spec);
}

}  // namespace

Result<std::map<std::string, std::string>> folder_tokenizer_of_gguf(const GgufFile& file) {
  const auto usable = load_gguf_tokenizer(file);
  if (!usable) return fail(usable.error());
  const auto tokenizer = read_gguf_tokenizer_and_model(file);
  if (!tokenizer) return fail(tokenizer.error());
  const auto special_tokens = gguf_special_tokens(file);
  if (!special_tokens) return fail(special_tokens.error());
  auto templates = chat_templates(file);
  if (!templates) return fail(std::move(templates.error()));

  std::map<std::string, std::string> files;
  ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const auto& [name, token] : *special_tokens) config[name] = token;
  if (!templates->is_null()) config["chat_template"] = std::move(*templates);
  const bool is_model = tokenizer->spec.sentencepiece != nullptr;
  auto json = is_model ? json_of_sentencepiece(*tokenizer, **usable) : write_tokenizer_json(tokenizer->spec);
  if (json) {
    files["tokenizer.json"] = std::move(*json);
  } else {
    spdlog::info("{}: a tokenizer.model is written and no tokenizer.json: {}", file.path(), json.error().message);
    config["tokenizer_class"] = "LlamaTokenizer";
    describe_model(tokenizer->spec, config);
    files["tokenizer.model"] = tokenizer->sentencepiece;
  }
  const std::string& text = files["tokenizer_config.json"] = config.dump(2) + "\n";
  if (json) return files;
  const auto read_config = parse_tokenizer_config(text, "tokenizer_config.json");
  if (!read_config) return fail(read_config.error());
  const auto read_back = make_sentencepiece_tokenizer(tokenizer->sentencepiece, *read_config);
  if (!read_back) return fail(read_back.error());
  Status status = check_same_tokens(tokenizer->spec, file.path() + ": " + std::string(kGgufTokensKey), *read_back,
                                    "tokenizer_config.json");
  if (!status) return fail(std::move(status.error()));
  return files;
}

}  // namespace pagoda::io
