#pragma once

#include <string_view>

#include "engine/layers/adapter_modules.hpp"

namespace pagoda::adapters {

/// Returns a name of an adapter without the outer module, which the first published files of some models leave out:
/// "h.0.attn.c_attn" for "transformer.h.0.attn.c_attn". Empty if the name has no outer module.
std::string_view without_outer_module(std::string_view name);

/// Returns the module that an adapter calls `name`, with or without the outer module; or kNoModule.
layers::ModuleId find_module(const layers::AdapterModules& modules, std::string_view name);

}  // namespace pagoda::adapters
