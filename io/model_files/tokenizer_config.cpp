#include "io/model_files/tokenizer_config.hpp"

#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using tokenizer_file::JsonFields;

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr int kMaxDepth = 64;

// A token is written as its string, or as an object with its string under "content".
std::optional<std::string> parse_token(JsonFields& fields, const std::string& key) {
  const json* value = fields.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  if (value->is_object() && value->contains("content") && value->at("content").is_string()) {
    return value->at("content").get<std::string>();
  }
  fields.reject(key, "is neither a string nor an object with a string \"content\"");
  return std::nullopt;
}

std::optional<bool> parse_flag(JsonFields& fields, const std::string& key) {
  if (fields.find(key) == nullptr) return std::nullopt;
  return fields.boolean(key);
}

// A template is a string, or a list of {"name", "template"}.
std::optional<std::string> parse_chat_template(JsonFields& fields) {
  const json* value = fields.find("chat_template");
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    fields.reject("chat_template", "is neither a string nor a list");
    return std::nullopt;
  }
  for (const json& named : *value) {
    const bool whole = named.is_object() && named.contains("name") && named.contains("template") &&
                       named.at("name").is_string() && named.at("template").is_string();
    if (!whole) {
      fields.reject("chat_template", "has an element without a string \"name\" and a string \"template\"");
      return std::nullopt;
    }
    if (named.at("name") == "default") return named.at("template").get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, std::string_view file_name) {
  const auto refuse = [&](Error error) {
    error.message = tokenizer_file::one_line(std::string(file_name) + ": " + error.message);
    return fail(std::move(error));
  };
  bool too_deep = false;
  const json::parser_callback_t limit_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const json root = json::parse(text.begin(), text.end(), limit_depth, false);
  if (too_deep) {
    return refuse({ErrorCode::bad_config, "is nested deeper than " + std::to_string(kMaxDepth), "", -1});
  }
  if (root.is_discarded()) return refuse({ErrorCode::bad_config, "is not valid JSON", "", -1});
  if (!root.is_object()) return refuse({ErrorCode::bad_config, "is not an object", "", -1});
  JsonFields fields(root, "");
  TokenizerConfig config;
  config.add_bos_token = parse_flag(fields, "add_bos_token");
  config.add_eos_token = parse_flag(fields, "add_eos_token");
  config.bos_token = parse_token(fields, "bos_token");
  config.eos_token = parse_token(fields, "eos_token");
  config.unk_token = parse_token(fields, "unk_token");
  config.pad_token = parse_token(fields, "pad_token");
  config.chat_template = parse_chat_template(fields);
  for (const auto& field : root.items()) fields.find(field.key());
  if (Status status = fields.finish(); !status) return refuse(std::move(status.error()));
  return config;
}

Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return TokenizerConfig{};
  const Result<std::string> bytes = tokenizer_file::read_file(path, kMaxFileBytes);
  if (!bytes) return fail(bytes.error());
  return parse_tokenizer_config(*bytes, path.string());
}

}  // namespace pagoda::io
