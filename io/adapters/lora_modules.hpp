#pragma once

#include <vector>

#include "engine/adapters/adapter_ref.hpp"
#include "engine/config.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the adapters in `lora_modules`, in order, without ids. The text is NAME=PATH entries with commas between, or
/// a JSON array of such texts and of objects with `name`, `path` and perhaps `base_model_name`, or one such object.
/// Names are unique, none is a name of the model, and `base_model_name` is one. Nothing is read from disk. Error:
/// bad_config, with param "lora_modules".
Result<std::vector<AdapterRef>> parse_lora_modules(const EngineConfig& config);

}  // namespace pagoda::io
