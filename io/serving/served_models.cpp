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

const std::string& ServedModel::adapter() const {
  static const std::string none;
  return parent.empty() ? none : info.name;
}

ServedModel ServedModel::with_adapter(std::string name) const {
  ServedModel copy = *this;
  copy.parent = std::exchange(copy.info.name, std::move(name));
  copy.aliases.clear();
  return copy;
}

ServedModels::ServedModels(std::vector<ServedModel> models) : models_(std::move(models)) {
  PAGODA_ASSERT(!models_.empty(), "a server has a model");
}

SharedModel ServedModels::find(std::string_view name) const {
  constexpr std::string_view kLatest = ":latest";
  for (const ServedModel& model : models_) {
    if (model.serves(name)) return shared(model);
  }
  for (const ServedModel& model : models_) {
    if (model.adapters == nullptr || !model.adapters->contains(name)) continue;
    return std::make_shared<const ServedModel>(model.with_adapter(std::string(name)));
  }
  if (name.ends_with(kLatest)) return find(name.substr(0, name.size() - kLatest.size()));
  return takes_any_name_ ? shared(first()) : nullptr;
}

const ServedModel* ServedModels::find_model(std::string_view name) const {
  const auto found = find(name);
  if (found == nullptr || found->parent.empty()) return found.get();
  return &*std::ranges::find(models_, found->parent, [](const ServedModel& model) { return model.info.name; });
}

std::vector<std::string> ServedModels::names() const {
  std::vector<std::string> all;
  for (const auto& model : models_) {
    for (auto& name : model.names()) all.push_back(std::move(name));
    if (model.adapters == nullptr) continue;
    for (auto& adapter : model.adapters->list()) all.push_back(std::move(adapter.name));
  }
  return all;
}

std::string ServedModels::listed(std::string_view before, std::string_view after,
                                 const std::function<std::string(const std::string&)>& worded) const {
  std::string text;
  for (const auto& name : names()) {
    if (!text.empty()) text += ", ";
    text += before;
    text += worded ? worded(name) : name;
    text += after;
  }
  return text;
}

}  // namespace pagoda::serving
