#include "engine/layers/adapter_modules.hpp"

#include <utility>

#include "kernels/device.hpp"

namespace pagoda::layers {

ModuleId AdapterModules::add(AdapterModule module) {
  const auto id = static_cast<ModuleId>(all_.size());
  note(module.name);
  ids_.emplace(module.name, id);
  if (module.kind == AdapterModule::Kind::embedding) embedding_width_ = module.out_features;
  all_.push_back(std::move(module));
  return id;
}

ModuleId AdapterModules::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? kNoModule : found->second;
}

}  // namespace pagoda::layers
