#pragma once

#include <string>

#include "engine/config.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Replaces `model`, as a user gives it, by the folder or file that it means: io::locate_model with the local caches of
/// Hugging Face's hub, which HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME and XDG_CACHE_HOME name. An empty `model`
/// stays empty.
Status locate_model(std::string& model);
/// Calls locate_model for the model and the draft model of a configuration. A wrong speculative_config stays as it
/// is.
Status locate_models(EngineConfig& config);

}  // namespace pagoda::apps
