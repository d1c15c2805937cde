#include "io/serving/served_models.hpp"

#include <algorithm>

namespace pagoda::serving {

bool ServedModel::serves(std::string_view name) const {
  return name == info.name || std::ranges::find(aliases, name) != aliases.end();
}

std::vector<std::string> ServedModel::names() const {
  std::vector<std::string> all{info.name};
  all.insert(all.end(), aliases.begin(), aliases.end());
  return all;
}

ServedModels::ServedModels(std::vector<ServedModel> models) : models_(std::move(models)) {
  PAGODA_ASSERT(!models_.empty(), "a server has a model");
}

const ServedModel* ServedModels::find(std::string_view name) const {
  constexpr std::string_view kLatest = ":latest";
  const auto found = std::ranges::find_if(models_, [&](const ServedModel& model) { return model.serves(name); });
  if (found != models_.end()) return &*found;
  if (name.ends_with(kLatest)) return find(name.substr(0, name.size() - kLatest.size()));
  return takes_any_name_ ? &first() : nullptr;
}

std::string ServedModels::listed(std::string_view before, std::string_view after,
                                 const std::function<std::string(const std::string&)>& worded) const {
  std::string text;
  for (const auto& model : models_) {
    for (const auto& name : model.names()) {
      if (!text.empty()) text += ", ";
      text += before;
      text += worded ? worded(name) : name;
      text += after;
    }
  }
  return text;
}

}  // namespace pagoda::serving
