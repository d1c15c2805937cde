#include "io/config_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "io/nearest_name.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxDepth = 8;

}  // namespace

Result<ConfigFile> ConfigFile::load(const std::filesystem::path& path) {
  const auto refused = [&](int error) {
    return fail(ErrorCode::bad_config, "config: cannot read " + path.string() + ": " + std::strerror(error), "config");
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) return refused(errno);
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) return refused(EISDIR);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return parse(text, path.string());
}

Result<ConfigFile> ConfigFile::parse(std::string_view text, std::string name) {
  auto value = wire::read_json(text, kMaxDepth);
  if (!value) {
    const std::string& key = value.error().param;
    return fail(ErrorCode::bad_config, name + ": " + value.error().message, key.empty() ? "config" : key);
  }
  if (!value->is_object()) return fail(ErrorCode::bad_config, name + ": must hold one JSON object", "config");
  return ConfigFile(std::move(*value), std::move(name));
}

std::vector<std::string> ConfigFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) keys.push_back(key);
  return keys;
}

const wire::Json* ConfigFile::find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

tl::unexpected<Error> ConfigFile::refuse(const std::string& key, const std::string& expected) const {
  return fail(ErrorCode::bad_config, name_ + ": " + key + " must be " + expected + ", not " + find(key)->dump(), key);
}

Error ConfigFile::unknown_key(const std::string& key, std::span<const std::string_view> known) const {
  const auto nearest = nearest_name(key, known);
  const auto hint = nearest.empty() ? std::string() : "; did you mean \"" + std::string(nearest) + "\"?";
  return {ErrorCode::bad_config, name_ + ": unknown key \"" + key + "\"" + hint, key};
}

Status ConfigFile::read(const std::string& key, std::string& field) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_string()) return refuse(key, "a string");
  field = value->get<std::string>();
  return {};
}

Status ConfigFile::read(const std::string& key, bool& field) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) return refuse(key, "true or false");
  field = value->get<bool>();
  return {};
}

Status ConfigFile::read(const std::string& key, double& field) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_number()) return refuse(key, "a number");
  field = value->get<double>();
  return {};
}

Status ConfigFile::read(const std::string& key, JsonText& field) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_string() && !value->is_object()) return refuse(key, "an object");
  field.text = value->is_string() ? value->get<std::string>() : value->dump();
  return {};
}

namespace {

Result<EngineConfig> engine_config(const ConfigFile& file) {
  EngineConfig config;
  Status status;
  visit_fields(config, [&](const char* key, auto& field, const char*) {
    if (status) status = file.read(key, field);
  });
  if (!status) return fail(std::move(status.error()));
  const auto known = known_config_keys();
  for (const auto& key : file.keys()) {
    if (std::ranges::find(known, key) == known.end()) return fail(file.unknown_key(key, known));
  }
  return config;
}

}  // namespace

std::vector<std::string_view> known_config_keys() {
  std::vector<std::string_view> keys(kCommandKeys.begin(), kCommandKeys.end());
  const auto add = [&](const char* key, const auto&, const char*) { keys.emplace_back(key); };
  EngineConfig engine;
  visit_fields(engine, add);
  json_lines::ServerConfig server;
  visit_fields(server, add);
  http::ServerConfig http;
  visit_fields(http, add);
  return keys;
}

Result<EngineConfig> load_engine_config(const std::filesystem::path& path) {
  const auto file = ConfigFile::load(path);
  if (!file) return fail(file.error());
  return engine_config(*file);
}

Result<EngineConfig> parse_engine_config(std::string_view text, std::string name) {
  const auto file = ConfigFile::parse(text, std::move(name));
  if (!file) return fail(file.error());
  return engine_config(*file);
}

std::string to_text(EngineConfig config) {
  nlohmann::ordered_json object;
  visit_fields(config, [&](const char* key, const auto& field, const char*) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      for (const auto& [word, value] : EnumWords<Field>::kWords) {
        if (value == field) object[key] = word;
      }
    } else if constexpr (std::is_same_v<Field, JsonText>) {
      object[key] = field.text;
    } else {
      object[key] = field;
    }
  });
  return object.dump();
}

}  // namespace pagoda::io
