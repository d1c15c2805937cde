#pragma once

#include <string_view>

#include "engine/layers/adapter_modules.hpp"

namespace pagoda::adapters {

/// Returns the module that an adapter calls `name`, or kNoModule. Adapters name the outer module
/// ("transformer.h.0..."), which the first published files of some models leave out.
layers::ModuleId find_module(const layers::AdapterModules& modules, std::string_view name);

}  // namespace pagoda::adapters
