#include "io/model_files/tokenizer_config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/file_text.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using tokenizer_file::JsonFields;

constexpr std::size_t kMaxTokenizerConfigBytes = std::size_t{64} << 20;
constexpr int kMaxDepth = 64;

// A token is written as its string, or as an object with its string under "content" and flags that say how it is found.
std::optional<text::AddedToken> parse_token(const json& value) {
  text::AddedToken token;
  token.id = -1;
  token.special = true;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  if (!value.is_object() || !value.contains("content") || !value.at("content").is_string()) return std::nullopt;
  token.content = value.at("content").get<std::string>();
  const auto flag = [&](const char* key) {
    const auto found = value.find(key);
    return found != value.end() && found->is_boolean() && found->get<bool>();
  };
  token.single_word = flag("single_word");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  token.normalized = flag("normalized");
  return token;
}

constexpr std::array kNamedTokens{"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

/// Reads the special tokens that a model names beside the usual ones: "image_token": "<image>".
void parse_tokens_of_model(const json& root, TokenizerConfig& config) {
  for (const auto& [key, value] : root.items()) {
    if (!key.ends_with("_token") || !value.is_string() || std::ranges::find(kNamedTokens, key) != kNamedTokens.end()) {
      continue;
    }
    config.special_tokens.emplace_back(key, *parse_token(value));
  }
}

/// Reads `key`: a list of special tokens without names, or an object of tokens by their names.
void parse_extra_tokens(JsonFields& fields, const char* key, TokenizerConfig& config) {
  const json* tokens = fields.find(key);
  if (tokens == nullptr) return;
  if (!tokens->is_structured()) return fields.reject(key, "is not a list");
  for (const auto& [name, value] : tokens->items()) {
    if (auto token = parse_token(value)) {
      config.special_tokens.emplace_back(tokens->is_object() ? name : "", std::move(*token));
    } else {
      fields.reject(key, "has an element that is not a token");
    }
  }
}

void parse_special_tokens(JsonFields& fields, const json& root, TokenizerConfig& config) {
  for (const char* key : kNamedTokens) {
    const json* value = fields.find(key);
    if (value == nullptr) continue;
    if (auto token = parse_token(*value)) {
      config.special_tokens.emplace_back(key, std::move(*token));
    } else {
      fields.reject(key, "is neither a string nor an object with a string \"content\"");
    }
  }
  parse_tokens_of_model(root, config);
  const json* extra = fields.find("extra_special_tokens");
  const bool has_extra = extra != nullptr && !extra->empty();
  parse_extra_tokens(fields, has_extra ? "extra_special_tokens" : "additional_special_tokens", config);
}

std::optional<TokenId> parse_id(const std::string& digits) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size() || id < 0) return std::nullopt;
  return id;
}

void parse_added_tokens(JsonFields& fields, TokenizerConfig& config) {
  constexpr const char* kKey = "added_tokens_decoder";
  const json* tokens = fields.find(kKey);
  if (tokens == nullptr) return;
  config.has_added_tokens_decoder = true;
  if (!tokens->is_object()) {
    fields.reject(kKey, "is not an object");
    return;
  }
  for (const auto& [digits, value] : tokens->items()) {
    const auto id = parse_id(digits);
    auto token = value.is_object() ? parse_token(value) : std::nullopt;
    if (!id || !token) {
      fields.reject(kKey, "has an entry \"" + digits + "\" that is not an id with a token");
      return;
    }
    token->id = *id;
    token->special = value.value("special", json(false)) == true;
    if (!value.contains("normalized")) token->normalized = !token->special;
    config.added_tokens.push_back(std::move(*token));
  }
  std::ranges::sort(config.added_tokens, {}, &text::AddedToken::id);
}

std::optional<bool> parse_flag(JsonFields& fields, const std::string& key) {
  if (fields.find(key) == nullptr) return std::nullopt;
  return fields.boolean(key);
}

// A template is a string, or a list of {"name", "template"}.
void parse_chat_templates(JsonFields& fields, TokenizerConfig& config) {
  const json* value = fields.find("chat_template");
  if (value == nullptr) return;
  if (value->is_string()) {
    config.chat_templates["default"] = value->get<std::string>();
    return;
  }
  if (!value->is_array()) return fields.reject("chat_template", "is neither a string nor a list");
  for (const json& named : *value) {
    const bool whole = named.is_object() && named.contains("name") && named.contains("template") &&
                       named.at("name").is_string() && named.at("template").is_string();
    if (!whole) {
      return fields.reject("chat_template", "has an element without a string \"name\" and a string \"template\"");
    }
    config.chat_templates[named.at("name").get<std::string>()] = named.at("template").get<std::string>();
  }
}

tl::unexpected<Error> refuse(std::string_view file_name, Error error) {
  error.message = tokenizer_file::one_line(std::string(file_name) + ": " + error.message);
  return fail(std::move(error));
}

Result<json> parse_object(std::string_view text, std::string_view file_name) {
  bool too_deep = false;
  const json::parser_callback_t limit_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  json root = json::parse(text.begin(), text.end(), limit_depth, false);
  const auto bad = [&](std::string reason) { return refuse(file_name, {ErrorCode::bad_config, std::move(reason)}); };
  if (too_deep) return bad("is nested deeper than " + std::to_string(kMaxDepth));
  if (root.is_discarded()) return bad("is not valid JSON");
  if (!root.is_object()) return bad("is not an object");
  return root;
}

/// Returns the text of a file; nothing when there is no such file.
Result<std::optional<std::string>> read_if_present(const std::filesystem::path& path) {
  if (!has_entry(path)) return std::nullopt;
  Result<std::string> bytes = tokenizer_file::read_file(path, kMaxTokenizerConfigBytes);
  if (!bytes) return fail(std::move(bytes.error()));
  return std::move(*bytes);
}

/// Reads added_tokens.json: {"token": id}.
Status read_token_ids(const std::filesystem::path& path, TokenizerConfig& config) {
  const auto text = read_if_present(path);
  if (!text) return fail(text.error());
  if (!*text) return {};
  const Result<json> root = parse_object(**text, path.string());
  if (!root) return fail(root.error());
  std::unordered_set<std::string_view> special;
  for (const auto& [key, token] : config.special_tokens) special.insert(token.content);
  JsonFields fields(*root, "");
  for (const auto& [content, ignored] : root->items()) {
    text::AddedToken token;
    token.id = fields.natural(content);
    token.content = content;
    token.special = special.contains(content);
    token.normalized = !token.special;
    config.added_tokens.push_back(std::move(token));
  }
  if (Status status = fields.finish(); !status) return refuse(path.string(), std::move(status.error()));
  std::ranges::sort(config.added_tokens, {}, &text::AddedToken::id);
  return {};
}

/// Replaces tokens of the config by tokens with an equal key. Tokens without a key are added only if the config has
/// none.
void override_special_tokens(std::vector<std::pair<std::string, text::AddedToken>> tokens, TokenizerConfig& config) {
  using Named = std::pair<std::string, text::AddedToken>;
  const bool has_extra = config.special_token("") != nullptr;
  for (Named& token : tokens) {
    if (token.first.empty() && has_extra) continue;
    if (!token.first.empty())
      std::erase_if(config.special_tokens, [&](const Named& t) { return t.first == token.first; });
    config.special_tokens.push_back(std::move(token));
  }
  // The order determines the ids of tokens that the vocabulary lacks.
  std::ranges::stable_sort(config.special_tokens, {}, [](const Named& token) {
    return token.first.empty() ? kNamedTokens.size() + 1
                               : std::ranges::find(kNamedTokens, token.first) - kNamedTokens.begin();
  });
}

}  // namespace

const text::AddedToken* TokenizerConfig::special_token(std::string_view key) const {
  const auto found = std::ranges::find(special_tokens, key, &std::pair<std::string, text::AddedToken>::first);
  return found == special_tokens.end() ? nullptr : &found->second;
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, std::string_view file_name) {
  const Result<json> root = parse_object(text, file_name);
  if (!root) return fail(root.error());
  JsonFields fields(*root, "");
  TokenizerConfig config;
  config.add_bos_token = parse_flag(fields, "add_bos_token");
  config.add_eos_token = parse_flag(fields, "add_eos_token");
  config.add_prefix_space = parse_flag(fields, "add_prefix_space");
  config.legacy = parse_flag(fields, "legacy");
  if (const json* name = fields.find("tokenizer_class"); name != nullptr && name->is_string()) {
    config.tokenizer_class = name->get<std::string>();
  }
  parse_special_tokens(fields, *root, config);
  parse_added_tokens(fields, config);
  parse_chat_templates(fields, config);
  for (const auto& field : root->items()) fields.find(field.key());
  if (Status status = fields.finish(); !status) return refuse(file_name, std::move(status.error()));
  return config;
}

Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir) {
  const auto parse = [&](const char* name) -> Result<TokenizerConfig> {
    const auto text = read_if_present(model_dir / name);
    if (!text) return fail(text.error());
    return *text ? parse_tokenizer_config(**text, (model_dir / name).string()) : TokenizerConfig{};
  };
  Result<TokenizerConfig> config = parse("tokenizer_config.json");
  if (!config || config->has_added_tokens_decoder) return config;
  Result<TokenizerConfig> map = parse("special_tokens_map.json");
  if (!map) return map;
  override_special_tokens(std::move(map->special_tokens), *config);
  if (Status status = read_token_ids(model_dir / "added_tokens.json", *config); !status) return fail(status.error());
  return config;
}

}  // namespace pagoda::io
