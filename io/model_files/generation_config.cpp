#include "io/model_files/generation_config.hpp"

#include <limits>
#include <string>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxGenerationConfigBytes = std::size_t{16} << 20;

template <class T>
Status read(const json& root, const char* key, std::optional<T>& out) {
  const auto value = root.find(key);
  if (value == root.end() || value->is_null()) return {};
  const bool fits = std::is_integral_v<T> ? value->is_number_integer() : value->is_number();
  if (!fits) {
    return fail(ErrorCode::bad_config,
                std::string(key) + " must be " + (std::is_integral_v<T> ? "an integer" : "a number"), key);
  }
  out = value->get<T>();
  return {};
}

Result<SamplingDefaults> read_defaults(const json& root) {
  if (!root.is_object()) return fail(ErrorCode::bad_config, "not a JSON object");
  SamplingDefaults defaults;
  Status status = read(root, "max_new_tokens", defaults.max_tokens);
  if (status) status = read(root, "temperature", defaults.temperature);
  if (status) status = read(root, "top_p", defaults.top_p);
  if (status) status = read(root, "top_k", defaults.top_k);
  if (status) status = read(root, "min_p", defaults.min_p);
  if (status) status = read(root, "repetition_penalty", defaults.repetition_penalty);
  if (!status) return fail(status.error());
  // The validator of requests knows the ranges; none of these fields depends on the vocabulary.
  constexpr std::int64_t kAnyVocabulary = std::numeric_limits<std::int32_t>::max();
  status = validate(with_defaults({}, OpenSamplingFields::all(), defaults), SamplingLimits{}, kAnyVocabulary);
  if (!status) return fail(std::move(status.error()));
  return defaults;
}

Result<SamplingDefaults> named(Result<SamplingDefaults> defaults, std::string_view file_name) {
  if (defaults) return defaults;
  Error error = std::move(defaults.error());
  error.code = ErrorCode::bad_config;
  error.message = tokenizer_file::one_line(std::string(file_name) + ": " + error.message);
  return fail(std::move(error));
}

}  // namespace

Result<SamplingDefaults> parse_sampling_defaults(std::string_view text, std::string_view file_name) {
  const auto root = parse_json(text, file_name, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  return named(read_defaults(*root), file_name);
}

Result<SamplingDefaults> load_sampling_defaults(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "generation_config.json";
  if (!has_entry(path)) return SamplingDefaults{};
  const auto root = read_json_file(path, kMaxGenerationConfigBytes, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  return named(read_defaults(*root), path.string());
}

}  // namespace pagoda::io
