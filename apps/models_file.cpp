#include "apps/models_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/model_location.hpp"
#include "apps/packed_cache_folder.hpp"
#include "apps/text_file.hpp"
#include "io/config_file.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::apps {
namespace {

using wire::Json;

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxModels = 1024;
constexpr double kMaxSeconds = 1e9;

/// Keys of an entry that are not keys of an engine.
constexpr std::array<std::string_view, 4> kOwnKeys{"name", "aliases", "keep_alive", "preload"};

/// One entry, while it is read.
class Entry {
 public:
  Entry(const Json& object, std::string where, std::vector<Error>& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {}

  void refuse(std::string message, std::string key) {
    problems_.push_back({ErrorCode::bad_config, where_ + ": " + std::move(message), std::move(key)});
  }

  /// Reads every engine key of the entry.
  void read_engine(EngineConfig& config) {
    const auto file = io::ConfigFile::parse(object_.dump(), where_);
    if (!file) return problems_.push_back(file.error());
    auto unread = file->keys();
    std::erase_if(unread, [](const std::string& key) { return std::ranges::find(kOwnKeys, key) != kOwnKeys.end(); });
    std::vector<std::string_view> known(kOwnKeys.begin(), kOwnKeys.end());
    io::visit_fields(config, [&](const char* key, auto& field, const char*) {
      known.emplace_back(key);
      if (auto status = file->read(key, field); !status) problems_.push_back(std::move(status.error()));
      std::erase(unread, key);
    });
    for (const auto& key : unread) problems_.push_back(file->unknown_key(key, known));
    if (object_.contains("served_model_name")) {
      refuse("served_model_name must not be set: use name and aliases", "served_model_name");
    }
  }

  std::vector<std::string> names(const char* key) {
    const auto field = object_.find(key);
    if (field == object_.end()) return {};
    std::vector<std::string> names;
    const bool is_list = field->is_array() && std::ranges::all_of(*field, &Json::is_string);
    if (is_list) names = field->get<std::vector<std::string>>();
    if (!is_list || std::ranges::any_of(names, &is_no_name)) {
      refuse(std::string(key) + " must be a list of names", key);
    }
    return names;
  }

  double seconds(const char* key, double otherwise) {
    const auto field = object_.find(key);
    if (field == object_.end()) return otherwise;
    const double value = field->is_number() ? field->get<double>() : kMaxSeconds + 1;
    if (!(value <= kMaxSeconds)) refuse(std::string(key) + " must be seconds; below 0: forever", key);
    return value;
  }

  bool flag(const char* key) {
    const auto field = object_.find(key);
    if (field == object_.end()) return false;
    if (!field->is_boolean()) refuse(std::string(key) + " must be true or false", key);
    return field->is_boolean() && field->get<bool>();
  }

  /// Returns whether `name` cannot be a name: a list separated by commas could not hold it, or a user could not write
  /// it.
  static bool is_no_name(const std::string& name) {
    return name.empty() || name.size() > 256 || name.find_first_of(",\r\n\t\"`'") != std::string::npos ||
           name.front() == ' ' || name.back() == ' ';
  }

 private:
  const Json& object_;
  std::string where_;
  std::vector<Error>& problems_;
};

PooledModelConfig read_entry(const Json& object, std::string name, std::string where, const ModelDefaults& defaults,
                             std::vector<Error>& problems) {
  PooledModelConfig model;
  model.config = defaults.config;
  model.where = std::move(where);
  Entry entry(object, model.where, problems);
  if (Entry::is_no_name(name)) {
    entry.refuse("name is required: a text without commas, quotes and spaces around it", "name");
  }
  entry.read_engine(model.config);
  if (model.config.device == "cpu") {
    if (!defaults.sets_touch_memory && !object.contains("touch_memory")) model.config.touch_memory = false;
    if (!defaults.sets_weight_memory && !object.contains("weight_memory")) model.config.weight_memory = "mapped";
  } else if (!defaults.sets_touch_memory && !object.contains("touch_memory")) {
    model.config.touch_memory = EngineConfig().touch_memory;  // the command's own default is for CPUs
  }
  if (!defaults.sets_packed_cache && !object.contains("packed_cache")) model.config.packed_cache = kAutomaticCache;
  model.config.packed_cache = chosen_packed_cache(model.config.packed_cache, model.config.device);
  model.config.served_model_name = std::move(name);
  model.aliases = entry.names("aliases");
  model.keep_alive = entry.seconds("keep_alive", defaults.keep_alive);
  model.preload = entry.flag("preload");
  const bool sets_model = object.contains("model") && !object["model"].is_string();
  if (model.config.model.empty() && !sets_model) {
    entry.refuse("model is required: its folder, or GGUF file", "model");
  }
  if (const Status status = locate_models(model.config); !status) {
    entry.refuse(status.error().message, status.error().param == "speculative_config" ? "speculative_config" : "model");
  }
  return model;
}

}  // namespace

std::vector<PooledModelConfig> parse_models(std::string_view text, const std::string& path,
                                            const ModelDefaults& defaults, std::vector<Error>& problems) {
  const auto refuse = [&](const std::string& message) -> std::vector<PooledModelConfig> {
    problems.push_back({ErrorCode::bad_config, path + ": " + message, "models"});
    return {};
  };
  const auto json = wire::read_json(text, kMaxDepth);
  if (!json) return refuse(json.error().message);
  if (!json->is_structured()) return refuse("must hold a list of models, or an object from names to models");
  if (json->empty()) return refuse("has no model");
  if (json->size() > kMaxModels) return refuse("has more than " + std::to_string(kMaxModels) + " models");
  std::vector<PooledModelConfig> models;
  for (const auto& [key, object] : json->items()) {
    const auto index = json->is_array() ? "[" + key + "]" : key;
    if (!object.is_object()) {
      refuse(index + " must be an object with name, model and keys of its engine");
      continue;
    }
    std::string name = json->is_object() ? key : std::string();
    if (const auto named = object.find("name"); json->is_array() && named != object.end() && named->is_string()) {
      name = named->get<std::string>();
    } else if (json->is_object() && named != object.end()) {
      refuse(key + ": name is not allowed here, because the key is the name");
    }
    auto where = path + ": " + (name.empty() ? index : name);
    models.push_back(read_entry(object, std::move(name), std::move(where), defaults, problems));
  }
  return models;
}

std::vector<PooledModelConfig> read_models_file(const std::string& path, const ModelDefaults& defaults,
                                                std::vector<Error>& problems) {
  const auto text = read_text_file(path, "models");
  if (!text) {
    problems.push_back({ErrorCode::bad_config, text.error().message, "models"});
    return {};
  }
  return parse_models(*text, path, defaults, problems);
}

}  // namespace pagoda::apps
