#include "io/adapters/peft_config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "io/adapters/adapter_matrix.hpp"
#include "io/adapters/config_keys.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

// Values of keys that a file does not have, as in peft.
constexpr std::int64_t kDefaultRank = 8;
constexpr double kDefaultAlpha = 8.0;

constexpr std::int64_t kMaxLayer = 100'000;
constexpr std::size_t kMaxLayers = 100'000;

/// Keys that PeftConfig::parse reads.
constexpr std::array<std::string_view, 14> kReadKeys{"peft_type",       "r",
                                                     "lora_alpha",      "use_rslora",
                                                     "use_dora",        "bias",
                                                     "rank_pattern",    "alpha_pattern",
                                                     "target_modules",  "exclude_modules",
                                                     "modules_to_save", "layers_to_transform",
                                                     "layers_pattern",  "init_lora_weights"};

/// Keys whose value changes no result of a trained adapter: where it comes from, how it was trained, how the model
/// stores its weights, and parameters of methods that another key chooses.
constexpr std::array<std::string_view, 16> kFreeKeys{
    "task_type",      "base_model_name_or_path", "revision",      "auto_mapping",  "peft_version",
    "inference_mode", "fan_in_fan_out",          "lora_dropout",  "loftq_config",  "eva_config",
    "corda_config",   "lora_ga_config",          "velora_config", "megatron_core", "qalora_group_size",
    "runtime_config"};

/// Values of init_lora_weights that leave the weights of the base model as they are. The others move a part of these
/// weights into the matrices, so the adapter fits only a base model that was changed so.
constexpr std::array<std::string_view, 4> kPlainInits{"gaussian", "eva", "orthogonal", "mica"};

void check_method(ConfigReader& reader) {
  const std::string type = reader.string("peft_type");
  if (reader.status() && type != "LORA") {
    reader.reject("peft_type", quote(type) + " is not supported (LORA, PROMPT_TUNING, P_TUNING, PREFIX_TUNING)",
                  ErrorCode::unsupported);
  }
  const auto* init = reader.find("init_lora_weights");
  if (init == nullptr || init->is_boolean()) return;
  if (!init->is_string() || !is_one_of(init->get_ref<const std::string&>(), kPlainInits)) {
    reader.reject("init_lora_weights",
                  shown_value(*init) +
                      " changes the weights of the base model; convert the adapter to LoRA with peft "
                      "(save_pretrained with path_initial_model_for_weight_conversion)",
                  ErrorCode::unsupported);
  }
}

AdapterBias read_bias(ConfigReader& reader) {
  const std::string bias = reader.string("bias", "none");
  if (bias == "all") return AdapterBias::all;
  if (bias == "lora_only") return AdapterBias::lora_only;
  if (bias != "none")
    reader.reject("bias", quote(bias) + " is not supported (none, all, lora_only)", ErrorCode::unsupported);
  return AdapterBias::none;
}

/// Returns a part of a module's name, without its dots, as a number.
std::optional<std::int64_t> number_of(std::string_view part) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
  if (part.starts_with('-') || error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return number;
}

/// Returns the first number in a module's name that follows a match of `prefix` and is not the last part, as peft finds
/// the layer.
Result<std::optional<std::int64_t>> layer_of(std::string_view module, const NamePattern& prefix) {
  std::size_t begin = module.find('.');
  while (begin != module.npos) {
    const std::size_t end = module.find('.', begin + 1);
    if (end == module.npos) break;
    if (const auto number = number_of(module.substr(begin + 1, end - begin - 1))) {
      auto matches = prefix.matches(module.substr(0, begin));
      if (!matches) return fail(std::move(matches.error()));
      if (*matches) return number;
    }
    begin = end;
  }
  return std::nullopt;
}

}  // namespace

void PeftConfig::read_layers(ConfigReader& reader) {
  constexpr const char* kLayers = "layers_to_transform";
  constexpr const char* kPattern = "layers_pattern";
  const auto* layers = reader.find(kLayers);
  if (layers == nullptr) return;
  const auto add = [&](const nlohmann::json& layer) {
    const bool is_valid = layer.is_number_unsigned() && layer.get<std::uint64_t>() <= kMaxLayer;
    if (is_valid) return layers_.push_back(layer.get<std::int64_t>());
    reader.reject(kLayers, "must be a layer or a list of layers from 0 to " + std::to_string(kMaxLayer));
  };
  if (!layers->is_array()) add(*layers);
  if (layers->is_array() && layers->size() > kMaxLayers) {
    return reader.reject(kLayers, "has more than " + std::to_string(kMaxLayers) + " layers");
  }
  if (layers->is_array()) std::ranges::for_each(*layers, add);
  std::ranges::sort(layers_);
  if (!layers_.empty() && target_modules_.is_pattern() && !targets_all_) {
    return reader.reject(kLayers, "needs target_modules to be a list");
  }

  std::vector<std::string> names;
  if (const auto* pattern = reader.find(kPattern)) {
    const auto is_name = [](const nlohmann::json& name) { return name.is_string(); };
    if (pattern->is_string() && *pattern != "") {
      names.push_back(pattern->get<std::string>());
    } else if (pattern->is_array() && pattern->size() <= kMaxLayers && std::ranges::all_of(*pattern, is_name)) {
      names = pattern->get<std::vector<std::string>>();
    } else if (!pattern->is_string()) {
      return reader.reject(kPattern, "must be a string or a list of strings");
    }
  }
  // The expressions that peft uses.
  if (names.empty()) names.emplace_back(".*\\.[^.]*");
  for (const std::string& name : names) {
    auto compiled = NamePattern::compile("(?:^|.*\\.)" + name);
    if (!compiled) return reader.reject(kPattern, compiled.error().message);
    layer_prefixes_.push_back(std::move(*compiled));
  }
}

Result<PeftConfig> PeftConfig::parse(std::string_view text, std::string_view file_name) {
  const auto root = parse_json(text, file_name, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  if (!root->is_object()) return fail(ErrorCode::bad_config, std::string(file_name) + ": must be an object");

  ConfigReader reader(*root, std::string(file_name));
  check_method(reader);
  refuse_other_keys(reader, *root, kReadKeys, kFreeKeys);
  PeftConfig config;
  config.file_name_ = file_name;
  config.rank_ = reader.integer("r", 1, kMaxAdapterRank, kDefaultRank);
  config.alpha_ = reader.number("lora_alpha", 0.0, kDefaultAlpha);
  config.uses_rs_lora_ = reader.boolean("use_rslora", false);
  config.uses_dora_ = reader.boolean("use_dora", false);
  config.bias_ = read_bias(reader);
  const auto* targets = reader.find("target_modules");
  config.targets_all_ = targets == nullptr || *targets == "all-linear";
  if (!config.targets_all_) config.target_modules_ = ModuleChoice::read(reader, "target_modules");
  config.exclude_modules_ = ModuleChoice::read(reader, "exclude_modules");
  config.modules_to_save_ = ModuleChoice::read(reader, "modules_to_save");
  config.read_layers(reader);
  config.ranks_ = PatternValues::read(reader, text, "rank_pattern", kMaxAdapterRank);
  config.alphas_ = PatternValues::read(reader, text, "alpha_pattern");
  if (!reader.status()) return fail(reader.status().error());
  return config;
}

/// Adds the name of the file to an error of a pattern.
Error PeftConfig::in_file(Error error) const {
  error.message.insert(0, file_name_ + ": ");
  return error;
}

Result<std::int64_t> PeftConfig::rank_of(std::string_view module) const {
  auto rank = ranks_.value_of(module, static_cast<double>(rank_));
  if (!rank) return fail(in_file(std::move(rank.error())));
  return static_cast<std::int64_t>(*rank);
}

Result<float> PeftConfig::scale_of(std::string_view module, std::int64_t rank) const {
  auto alpha = alphas_.value_of(module, alpha_);
  if (!alpha) return fail(in_file(std::move(alpha.error())));
  const auto divisor = static_cast<double>(rank);
  const auto scale = static_cast<float>(*alpha / (uses_rs_lora_ ? std::sqrt(divisor) : divisor));
  if (std::isfinite(scale)) return scale;
  return fail(ErrorCode::bad_config,
              file_name_ + ": lora_alpha: the alpha of module " + quote(module) + " is too large", "lora_alpha");
}

Result<bool> PeftConfig::saves(std::string_view module) const {
  auto saved = modules_to_save_.contains(module);
  if (!saved) return fail(in_file(std::move(saved.error())));
  return *saved;
}

Result<bool> PeftConfig::targets(std::string_view module) const {
  for (const ModuleChoice* excluded : {&exclude_modules_, &modules_to_save_}) {
    auto contains = excluded->contains(module);
    if (!contains) return fail(in_file(std::move(contains.error())));
    if (*contains) return false;
  }
  auto targeted = targets_all_ ? Result<bool>(true) : target_modules_.contains(module);
  if (!targeted) return fail(in_file(std::move(targeted.error())));
  // peft chooses a module whose full name is in the list, also if layers_to_transform leaves its layer out.
  if (!*targeted || layers_.empty() || target_modules_.has_full_name(module)) return *targeted;
  for (const NamePattern& prefix : layer_prefixes_) {
    auto layer = layer_of(module, prefix);
    if (!layer) return fail(in_file(std::move(layer.error())));
    if (*layer) return std::ranges::binary_search(layers_, **layer);
  }
  return false;
}

}  // namespace pagoda::io
