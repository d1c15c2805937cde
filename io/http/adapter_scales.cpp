#include "io/http/adapter_scales.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::http {
namespace {

using serving::ServedAdapters;

tl::unexpected<ErrorAnswer> refused_scales(std::string why) {
  return tl::unexpected(invalid_request(std::move(why), "lora"));
}

std::string numbered_names(const std::vector<ServedAdapters::Adapter>& adapters) {
  if (adapters.empty()) return "the model has none";
  std::string text = "the adapters are ";
  for (const auto& adapter : adapters) {
    if (&adapter != &adapters.front()) text += ", ";
    text += std::to_string(adapter.id) + " (`" + adapter.name + "`)";
  }
  return text;
}

}  // namespace

wire::Json scale_entry(const ServedAdapters::Adapter& adapter) {
  return {{"id", adapter.id}, {"name", adapter.name}, {"path", adapter.path},
          {"scale", 0},       {"task_name", ""},      {"prompt_prefix", ""}};
}

tl::expected<std::vector<AdapterScale>, ErrorAnswer> read_scales(const wire::Json& list,
                                                                 const serving::ServedModel& model) {
  constexpr const char* kForm = "adapters are selected by a list of objects with id and scale, which are numbers";
  if (!list.is_array()) return refused_scales(kForm);
  const auto known = model.adapters ? model.adapters->list() : std::vector<ServedAdapters::Adapter>();
  std::vector<AdapterScale> scales;
  for (const auto& entry : list) {
    const auto id = entry.is_object() ? entry.find("id") : entry.end();
    if (!entry.is_object() || id == entry.end() || !id->is_number_integer()) return refused_scales(kForm);
    const auto adapter = std::ranges::find_if(known, [&](const auto& one) { return *id == one.id; });
    if (adapter == known.end()) {
      return refused_scales("there is no adapter " + id->dump() + ": " + numbered_names(known));
    }
    const std::string place = "adapter " + id->dump();
    if (std::ranges::find(scales, adapter->name, &AdapterScale::name) != scales.end()) {
      return refused_scales(place + " is in the list twice");
    }
    AdapterScale& scale = scales.emplace_back(adapter->name);
    const auto shown = scale_entry(*adapter);
    for (const auto& [key, value] : entry.items()) {
      if (key == "id" || value.is_null()) continue;
      if (key == "scale") {
        if (!value.is_number()) return refused_scales(kForm);
        if (value != 0 && value != 1) {
          return refused_scales(place + ": scale must be 1 or 0: an adapter has the scale of its files");
        }
        scale.is_applied = value == 1;
      } else if (const auto listed = shown.find(key); listed == shown.end()) {
        return refused_scales(place + ": unknown key \"" + key + "\": an adapter is selected by id and scale");
      } else if (*listed != value) {
        return refused_scales(place + ": " + key + " is not what GET /lora-adapters shows");
      }
    }
  }
  return scales;
}

tl::expected<std::string, ErrorAnswer> selected_adapter(const wire::Json& list, const serving::ServedModel& model) {
  const auto scales = read_scales(list, model);
  if (!scales) return tl::unexpected(scales.error());
  const std::string& named = model.adapter();
  std::string selected;
  for (const auto& [name, is_applied] : *scales) {
    if (!is_applied && name == named)
      return refused_scales("model names the adapter `" + name + "`, whose scale in lora is 0");
    if (!is_applied) continue;
    if (!selected.empty()) return refused_scales("a request can use one adapter: only one scale may be 1");
    if (!named.empty() && name != named) return refused_scales("lora and model name different adapters");
    selected = name;
  }
  return selected.empty() ? named : selected;
}

}  // namespace pagoda::http
