#include "engine/speculation_config.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace pagoda {
namespace {

constexpr const char* kKey = "speculative_config";

tl::unexpected<Error> refuse(const std::string& what) {
  return fail(ErrorCode::bad_config, std::string(kKey) + " " + what, kKey);
}

/// Takes the keys of an object one by one. The first problem stays.
class Reader {
 public:
  explicit Reader(nlohmann::json object) : object_(std::move(object)) {}

  std::optional<std::int32_t> count(const std::string& key, std::int32_t min = 1,
                                    std::int32_t max = SpeculationConfig::kMaxTokens) {
    const auto value = take(key);
    if (!value) return std::nullopt;
    if (value->is_number_integer() && *value >= min && *value <= max) return value->get<std::int32_t>();
    refuse("must be a number from " + std::to_string(min) + " to " + std::to_string(max), key, *value);
    return std::nullopt;
  }

  /// Takes a number that can only be 1.
  void one(const std::string& key) {
    const auto value = take(key);
    if (value && *value != 1) refuse("must be 1", key, *value);
  }

  std::optional<double> probability(const std::string& key) {
    const auto value = take(key);
    if (!value) return std::nullopt;
    if (value->is_number() && *value >= 0 && *value <= 1) return value->get<double>();
    refuse("must be a number from 0 to 1", key, *value);
    return std::nullopt;
  }

  /// Takes the method. With a draft model it need not be named.
  std::optional<SpeculationMethod> method() {
    const auto value = take("method");
    if (value ? *value == "draft_model" : object_.contains("model")) return SpeculationMethod::draft_model;
    if (value && *value == "ngram") return SpeculationMethod::ngram;
    if (value && *value == "suffix") return SpeculationMethod::suffix;
    if (value && *value == "eagle3") return SpeculationMethod::eagle3;
    if (value) {
      refuse(R"(must be "ngram", "suffix", "draft_model" or "eagle3")", "method", *value);
    } else {
      set_problem(R"(needs the key method ("ngram", "suffix" or "eagle3") or the key model (a draft model))");
    }
    return std::nullopt;
  }

  /// Takes a path, which must be there.
  std::optional<std::string> path(const std::string& key) {
    const auto value = take(key);
    if (value && value->is_string() && !value->get<std::string>().empty()) return value->get<std::string>();
    if (value) {
      refuse("must be the path of a model", key, *value);
    } else {
      set_problem("needs the key " + key + ": the path of a draft model");
    }
    return std::nullopt;
  }

  Status finish() {
    if (!object_.empty()) set_problem("has the unknown key \"" + object_.begin().key() + "\"");
    if (problem_) return pagoda::refuse(*problem_);
    return {};
  }

 private:
  std::optional<nlohmann::json> take(const std::string& key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return std::nullopt;
    nlohmann::json value = std::move(*found);
    object_.erase(found);
    return value;
  }
  void refuse(const std::string& must, const std::string& key, const nlohmann::json& value) {
    set_problem("is wrong: " + key + " " + must + ", not " + value.dump());
  }
  void set_problem(std::string problem) {
    if (!problem_) problem_ = std::move(problem);
  }

  nlohmann::json object_;
  std::optional<std::string> problem_;
};

}  // namespace

Result<SpeculationConfig> parse_speculation_config(std::string_view json) {
  SpeculationConfig config;
  if (json.empty()) return config;
  auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return refuse("must be a JSON object, such as {\"method\": \"ngram\"}");
  Reader reader(std::move(object));
  config.method = reader.method().value_or(config.method);
  config.max_drafts = reader.count("num_speculative_tokens").value_or(config.max_drafts);
  if (config.method == SpeculationMethod::suffix) {
    config.max_match = reader.count("suffix_decoding_max_tree_depth").value_or(config.max_match);
    config.min_match = std::min(config.min_match, config.max_match);
    config.max_outputs = reader.count("suffix_decoding_max_cached_requests", 0, SpeculationConfig::kMaxOutputs)
                             .value_or(config.max_outputs);
    config.min_chance = reader.probability("suffix_decoding_min_token_prob").value_or(config.min_chance);
  } else if (config.has_draft_model()) {
    config.draft_model = reader.path("model").value_or("");
    reader.one("draft_tensor_parallel_size");
  } else {
    const auto min = reader.count("prompt_lookup_min");
    const auto max = reader.count("prompt_lookup_max");
    config.max_match = max.value_or(std::max(config.max_match, min.value_or(0)));
    config.min_match = min.value_or(std::min(config.min_match, config.max_match));
  }
  if (Status status = reader.finish(); !status) return fail(std::move(status.error()));
  if (config.min_match > config.max_match) {
    return refuse("is wrong: prompt_lookup_min is " + std::to_string(config.min_match) +
                  ", above prompt_lookup_max, which is " + std::to_string(config.max_match));
  }
  return config;
}

}  // namespace pagoda
