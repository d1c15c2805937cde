#include "io/http/ollama/models.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/http/ollama/answers.hpp"
#include "io/http/ollama/model_names.hpp"
#include "io/serving/key_ring.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::ollama {
namespace {

using serving::ServedModel;
using wire::JsonWriter;

constexpr const char* kApiVersion = "0.14.0";  // the first version with all routes of this API; /v1/messages came last
constexpr const char* kNever = "2318-01-01T00:00:00Z";  // Ollama's value for a model that is never unloaded

/// Sizes of a model, and their names in GGUF files and for Ollama's clients.
constexpr std::pair<std::string_view, const char*> kSizes[] = {{"hidden_size", "embedding_length"},
                                                               {"intermediate_size", "feed_forward_length"},
                                                               {"num_layers", "block_count"},
                                                               {"num_heads", "attention.head_count"},
                                                               {"num_kv_heads", "attention.head_count_kv"},
                                                               {"head_dim", "attention.key_length"}};

std::string loaded_at(const ApiContext& context) {
  return timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(context.created)));
}

/// Formats a number of parameters in Ollama's format: "134.52M".
std::string parameter_size(std::int64_t num_parameters) {
  const auto count = static_cast<double>(num_parameters);
  if (count >= 1e9) return fmt::format("{:.1f}B", count / 1e9);
  return count >= 1e6 ? fmt::format("{:.2f}M", count / 1e6) : fmt::format("{:.2f}K", count / 1e3);
}

/// Returns the capabilities of a model in Ollama's names.
std::vector<std::string_view> capabilities_of(const ServedModel& model) {
  std::vector<std::string_view> capabilities{"completion"};
  if (model.chat == nullptr) return capabilities;
  const auto dialect = model.chat->dialect();
  if (dialect->calls) capabilities.emplace_back("tools");
  if (dialect->thinking) capabilities.emplace_back("thinking");
  return capabilities;
}

void write_capabilities(JsonWriter& json, const ServedModel& model) {
  json.key("capabilities").array(capabilities_of(model), [](JsonWriter& list, std::string_view one) {
    list.value(one);
  });
}

/// Returns the chat template, or Ollama's default for a model without one.
std::string template_of(const ServedModel& model) {
  return model.chat == nullptr ? "{{ .Prompt }}" : model.chat->source();
}

/// Returns a digest of the facts about a model. Clients cache facts under the digest, and treat names with the same
/// digest as one model.
std::string model_digest(const ServedModel& served) {
  const auto& model = served.info;
  std::string facts = model.name + '\n' + model.architecture + '\n' + model.quantization + '\n' + template_of(served);
  for (const auto number : {model.num_parameters, model.weight_bytes, model.max_model_len}) {
    facts += '\n' + std::to_string(number);
  }
  if (!served.parent.empty()) facts += '\n' + served.parent;
  for (const auto one : capabilities_of(served)) facts.append(1, '\n').append(one);
  return serving::to_hex(serving::digest_of(facts));
}

void write_details(JsonWriter& json, const ServedModel& served) {
  const auto& model = served.info;
  json.key("details").open_object();
  json.field("parent_model", served.parent).field("format", model.format).field("family", model.architecture);
  json.key("families").open_array().value(model.architecture).close_array();
  json.field("parameter_size", parameter_size(model.num_parameters));
  json.field("quantization_level", model.quantization.empty() ? model.dtype : model.quantization).close_object();
}

/// Writes the members that both lists have in common into an open object.
void write_model(JsonWriter& json, const ServedModel& model, const std::string& name, const std::string& digest) {
  const auto tagged = with_tag(name);
  json.field("name", tagged).field("model", tagged).field("size", model.info.weight_bytes).field("digest", digest);
  write_details(json, model);
}

/// Returns the list of the models for which `is_listed` returns true, with one entry for each name of a model.
template <class IsListed, class WriteRest>
std::string listed(const ApiContext& context, IsListed is_listed, WriteRest write_rest) {
  std::string out;
  JsonWriter json(out);
  json.open_object().key("models").open_array();
  const auto write = [&](const ServedModel& model) {
    const auto digest = model_digest(model);
    for (const auto& name : model.names()) {
      json.open_object();
      write_model(json, model, name, digest);
      write_rest(json, model);
      json.close_object();
    }
  };
  for (const auto& model : context.models.all()) {
    if (!is_listed(model)) continue;
    write(model);
    if (model.adapters == nullptr) continue;
    for (auto& adapter : model.adapters->list()) write(model.with_adapter(std::move(adapter.name)));
  }
  json.close_array().close_object();
  return out;
}

/// Returns the time at which a model is unloaded if it is not used. For a model with work, it is as if the work ended
/// now, as in Ollama.
std::string expiry_of(const ServedModel& model) {
  if (!model.residency) return kNever;
  using std::chrono::system_clock;
  if (const auto expires = model.residency->expires_unix_s.load(); expires != 0) {
    return timestamp(system_clock::time_point(std::chrono::seconds(expires)));
  }
  const TimeUs keep_alive_us = model.residency->keep_alive_us;
  if (keep_alive_us == model_pool::kForever) return kNever;
  return timestamp(system_clock::now() + std::chrono::microseconds(keep_alive_us));
}

}  // namespace

std::string list_models(const ApiContext& context) {
  return listed(
      context, [](const ServedModel&) { return true; },
      [&](JsonWriter& json, const ServedModel& model) {
        json.field("modified_at", loaded_at(context));
        write_capabilities(json, model);
      });
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
  json.open_object().field("modelfile", "").field("parameters", "").field("template", template_of(served));
  write_details(json, served);
  json.key("model_info").open_object();
  json.field("general.architecture", model.architecture).field("general.basename", model.name);
  json.field("general.parameter_count", model.num_parameters);
  json.text_key(model.architecture + ".context_length").value(model.max_model_len);
  for (const auto& [size, name] : kSizes) {
    const auto known = std::ranges::find(model.sizes, size, &std::pair<std::string, std::int64_t>::first);
    if (known != model.sizes.end()) json.text_key(model.architecture + "." + name).value(known->second);
  }
  json.text_key(model.architecture + ".vocab_size").value(model.vocab_size).close_object();
  write_capabilities(json, served);
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
