#include "io/http/ollama/models.hpp"

#include <chrono>

#include <fmt/format.h>

#include "io/http/ollama/answers.hpp"
#include "io/http/ollama/model_names.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::ollama {
namespace {

using serving::ServedModel;
using wire::JsonWriter;

constexpr const char* kApiVersion = "0.12.11";          // the first whose generate and chat have logprobs
constexpr const char* kNever = "2318-01-01T00:00:00Z";  // what Ollama says of a model that stays

std::string loaded_at(const ApiContext& context) {
  return timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(context.created)));
}

/// "134.52M", as Ollama writes numbers of parameters.
std::string parameter_size(std::int64_t num_parameters) {
  const auto count = static_cast<double>(num_parameters);
  if (count >= 1e9) return fmt::format("{:.1f}B", count / 1e9);
  return count >= 1e6 ? fmt::format("{:.2f}M", count / 1e6) : fmt::format("{:.2f}K", count / 1e3);
}

void write_details(JsonWriter& json, const ModelInfo& model) {
  json.key("details").open_object();
  json.field("parent_model", "").field("format", model.format).field("family", model.architecture);
  json.key("families").open_array().value(model.architecture).close_array();
  json.field("parameter_size", parameter_size(model.num_parameters));
  json.field("quantization_level", model.quantization.empty() ? model.dtype : model.quantization).close_object();
}

/// The members that both lists have, of an open object. Clients cut the digest to twelve digits without a look at it.
void write_model(JsonWriter& json, const ModelInfo& model, const std::string& name) {
  const auto tagged = with_tag(name);
  json.field("name", tagged)
      .field("model", tagged)
      .field("size", model.weight_bytes)
      .field("digest", std::string(64, '0'));
  write_details(json, model);
}

/// Those that are listed, under each of their names.
template <class IsListed, class WriteRest>
std::string listed(const ApiContext& context, IsListed is_listed, WriteRest write_rest) {
  std::string out;
  JsonWriter json(out);
  json.open_object().key("models").open_array();
  for (const auto& model : context.models.all()) {
    if (!is_listed(model)) continue;
    for (const auto& name : model.names()) {
      json.open_object();
      write_model(json, model.info, name);
      write_rest(json, model);
      json.close_object();
    }
  }
  json.close_array().close_object();
  return out;
}

/// When a model goes unless it is used.
std::string expiry_of(const ServedModel& model) {
  const auto expires = model.residency ? model.residency->expires_unix_s.load() : 0;
  if (expires == 0) return kNever;
  return timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(expires)));
}

}  // namespace

std::string list_models(const ApiContext& context) {
  return listed(
      context, [](const ServedModel&) { return true; },
      [&](JsonWriter& json, const ServedModel&) { json.field("modified_at", loaded_at(context)); });
}

std::string list_running(const ApiContext& context) {
  return listed(
      context, [](const ServedModel& model) { return model.state() == model_pool::ModelState::loaded; },
      [](JsonWriter& json, const ServedModel& model) {
        json.field("expires_at", expiry_of(model)).field("size_vram", 0);
        json.field("context_length", model.info.max_model_len);
      });
}

std::string show_model(const ApiContext& context, const ServedModel& served) {
  const auto& model = served.info;
  std::string out;
  JsonWriter json(out);
  json.open_object().field("modelfile", "").field("parameters", "").field("template", "");
  write_details(json, model);
  json.key("model_info").open_object();
  json.field("general.architecture", model.architecture).field("general.basename", model.name);
  json.field("general.parameter_count", model.num_parameters);
  json.text_key(model.architecture + ".context_length").value(model.max_model_len);
  json.text_key(model.architecture + ".vocab_size").value(model.vocab_size).close_object();
  json.key("capabilities").open_array().value("completion").close_array();
  json.field("modified_at", loaded_at(context)).close_object();
  return out;
}

std::string version_answer() {
  std::string out;
  JsonWriter json(out);
  json.open_object().field("version", kApiVersion).field("pagoda", version()).close_object();
  return out;
}

}  // namespace pagoda::http::ollama
