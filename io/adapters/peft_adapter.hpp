#pragma once

#include <filesystem>

#include "engine/adapters/adapter.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads an adapter as PEFT saves it: a folder with adapter_config.json (peft_config.hpp for LoRA, prompt_config.hpp
/// for prompt adapters) and adapter_model.safetensors or adapter_model.bin (adapter_tensors.hpp). Modules get the names
/// of a Hugging Face checkpoint, without the prefixes of programs and of models with a vision part. A module whose base
/// weight peft has saved beside its matrices has both (base_weights.hpp).
///
/// Errors, one line that names file, tensor or key, and reason: io_failed (no such file), bad_config and unsupported
/// (see PeftConfig::parse and PromptConfig::parse), out_of_memory, bad_file (errors of the files; a tensor that is none
/// of an adapter's or has no partner; shapes that do not fit each other, or a rank other than the config gives; a
/// module that the config does not choose; virtual tokens of another shape than the config gives; elements that are
/// infinite or NaN; no tensor at all).
Result<adapters::Adapter> read_peft_adapter(const std::filesystem::path& folder);

}  // namespace pagoda::io
