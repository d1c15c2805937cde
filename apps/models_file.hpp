#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"
#include "pagoda/model_pool.hpp"

namespace pagoda::apps {

/// What entries leave open. Memory that the flags do not speak of either is such, on a CPU, that models are there at
/// once: that of the KV cache is taken as it is used, weights stay where they are mapped.
struct ModelDefaults {
  EngineConfig config;
  double keep_alive = -1;
  bool sets_touch_memory = false;
  bool sets_weight_memory = false;
};

/// The models of `pagoda serve --models` (docs/several-models.md): a JSON list of objects with `name`, `model` and
/// whatever else an engine may be told, or one object from names to such objects. What an entry leaves open is as in
/// `defaults`. Appends what is wrong to `problems`, all of it at once: bad_config.
std::vector<PooledModelConfig> read_models_file(const std::string& path, const ModelDefaults& defaults,
                                                std::vector<Error>& problems);
/// The same of a text; `path` stands for it in messages.
std::vector<PooledModelConfig> parse_models(std::string_view text, const std::string& path,
                                            const ModelDefaults& defaults, std::vector<Error>& problems);

}  // namespace pagoda::apps
