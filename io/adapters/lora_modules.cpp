#include "io/adapters/lora_modules.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "engine/request/generate_request.hpp"
#include "io/model_files/model_location.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::io {
namespace {

/// Returns an error without the name of the key, which parse_lora_modules adds.
tl::unexpected<Error> wrong_modules(const std::string& why) {
  return fail(ErrorCode::bad_config, why);
}

Result<AdapterRef> module_of_text(std::string_view entry) {
  const auto equals = entry.find('=');
  if (equals == std::string_view::npos) return wrong_modules("must be NAME=PATH, not " + std::string(entry));
  return AdapterRef{0, std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))};
}

/// Returns the names that the model certainly has. Without a served_model_name, it also has one that its files give.
std::vector<std::string> model_names(const EngineConfig& config) {
  auto names = config.served_model_names();
  if (!names.empty()) return names;
  const auto path = std::filesystem::path(config.model).lexically_normal();
  const auto last = path.has_filename() ? path : path.parent_path();
  names = {config.model, last.filename().string(), last.stem().string()};
  if (auto hub = hub_name(path)) names.push_back(*std::move(hub));
  return names;
}

Result<AdapterRef> module_of_json(const wire::Json& entry, const std::vector<std::string>& models) {
  if (entry.is_string()) return module_of_text(entry.get_ref<const std::string&>());
  if (!entry.is_object()) return wrong_modules("an entry must be NAME=PATH, or an object with name and path");
  AdapterRef module;
  for (const auto& [key, value] : entry.items()) {
    const bool is_base = key == "base_model_name";
    if (key != "name" && key != "path" && !is_base) return wrong_modules("unknown key " + key);
    if (is_base && value.is_null()) continue;
    if (!value.is_string()) return wrong_modules(key + " must be a string");
    if (is_base && std::ranges::find(models, value.get_ref<const std::string&>()) == models.end()) {
      return wrong_modules("base_model_name " + value.get<std::string>() + " is not the name of the model");
    }
    if (!is_base) (key == "name" ? module.name : module.path) = value.get<std::string>();
  }
  return module;
}

Result<std::vector<Result<AdapterRef>>> entries_of(std::string_view text, const std::vector<std::string>& models) {
  std::vector<Result<AdapterRef>> entries;
  const bool is_object = text.starts_with('{');  // several are joined with commas if the flag is repeated
  if (is_object || text.starts_with('[')) {
    constexpr std::size_t kMaxDepth = 4;
    const auto json = wire::read_json(is_object ? "[" + std::string(text) + "]" : std::string(text), kMaxDepth);
    if (!json) return wrong_modules(json.error().message);
    for (const auto& entry : *json) entries.push_back(module_of_json(entry, models));
    return entries;
  }
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    entries.push_back(module_of_text(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return entries;
}

/// Appends the adapters of one key.
Status read_list(const char* key, const std::string& text, const std::vector<std::string>& models,
                 std::vector<AdapterAtStart>& modules) {
  const auto entries = entries_of(text, models);
  if (!entries) return fail(entries.error());
  for (const auto& entry : *entries) {
    if (!entry) return fail(entry.error());
    if (auto problem = problem_of_adapter_name(entry->name); !problem.empty()) {
      return wrong_modules("a name " + std::move(problem));
    }
    if (std::ranges::find(models, entry->name) != models.end()) {
      return wrong_modules(entry->name + " is the name of the model");
    }
    if (entry->path.empty()) return wrong_modules("the path of " + entry->name + " is empty");
    if (std::ranges::find(modules, entry->name, &AdapterAtStart::name) != modules.end()) {
      return wrong_modules("the name " + entry->name + " is given twice");
    }
    modules.push_back({*entry, key});
  }
  return {};
}

}  // namespace

std::string problem_of_adapter_name(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty()) return "must not be empty";
  if (name.size() > kMaxAdapterNameBytes) {
    return "must have at most " + std::to_string(kMaxAdapterNameBytes) + " bytes, not " + std::to_string(name.size());
  }
  if (std::ranges::any_of(name, is_control)) return "must have no control characters";
  if (name.ends_with(":latest")) return "must not end with \":latest\"";
  return {};
}

Result<std::vector<AdapterAtStart>> parse_lora_modules(const EngineConfig& config) {
  const auto models = model_names(config);
  std::vector<AdapterAtStart> modules;
  const std::pair<const char*, const std::string&> lists[] = {{"lora_modules", config.lora_modules},
                                                              {"prompt_adapters", config.prompt_adapters}};
  for (const auto& [key, text] : lists) {
    if (Status read = read_list(key, text, models, modules); !read) {
      return fail(ErrorCode::bad_config, std::string(key) + ": " + read.error().message, key);
    }
  }
  return modules;
}

}  // namespace pagoda::io
