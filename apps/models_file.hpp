#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"
#include "pagoda/model_pool.hpp"

namespace pagoda::apps {

/// Values for keys that an entry does not have. On a CPU, memory that the flags do not set either is set up so that
/// models load at once: memory of the KV cache is taken when it is used, and weights stay in their mapped files.
struct ModelDefaults {
  EngineConfig config;
  double keep_alive = -1;
  bool sets_touch_memory = false;
  bool sets_weight_memory = false;
  bool sets_packed_cache = false;
};

/// Reads the models of `pagoda serve --models` (docs/several-models.md): a JSON list of objects with `name`, `model`
/// and any other engine keys, or one object from names to such objects. Missing keys are taken from `defaults`. Appends
/// all problems to `problems`: bad_config.
std::vector<PooledModelConfig> read_models_file(const std::string& path, const ModelDefaults& defaults,
                                                std::vector<Error>& problems);
/// Reads the models from a text. `path` stands for the text in messages.
std::vector<PooledModelConfig> parse_models(std::string_view text, const std::string& path,
                                            const ModelDefaults& defaults, std::vector<Error>& problems);

}  // namespace pagoda::apps
