#include "engine/layers/adapter_modules.hpp"

#include <algorithm>
#include <utility>

#include "kernels/device.hpp"

namespace pagoda::layers {

ModuleId AdapterModules::add(AdapterModule module) {
  const auto id = static_cast<ModuleId>(all_.size());
  note(module.name);
  ids_.emplace(module.name, id);
  all_.push_back(std::move(module));
  return id;
}

std::int64_t AdapterModules::embedding_width() const {
  const auto table = std::ranges::find(all_, AdapterModule::Kind::embedding, &AdapterModule::kind);
  return table == all_.end() ? 0 : table->out_features;
}

ModuleId AdapterModules::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? kNoModule : found->second;
}

}  // namespace pagoda::layers
