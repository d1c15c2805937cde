#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config.hpp"
#include "engine/step/adapter_ref.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// An adapter that the configuration names; without an id.
struct AdapterAtStart : AdapterRef {
  const char* key = "";  ///< key that names it: "lora_modules" or "prompt_adapters"
};

/// Returns what is wrong with a name for an adapter; empty if nothing is. Names have 1 to kMaxAdapterNameBytes bytes,
/// no control characters, and do not end with ":latest", which Ollama's clients add to any name.
std::string problem_of_adapter_name(std::string_view name);

/// Returns the adapters in `lora_modules`, in order, then those in `prompt_adapters`. The text of both keys is
/// NAME=PATH entries with commas between, or a JSON array of such texts and of objects with `name`, `path` and perhaps
/// `base_model_name`, or one such object. Names are unique, none is a name of the model, and `base_model_name` is one.
/// Nothing is read from disk. Error: bad_config, with the key as its param.
Result<std::vector<AdapterAtStart>> parse_lora_modules(const EngineConfig& config);

}  // namespace pagoda::io
