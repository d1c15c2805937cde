#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "engine/config.hpp"
#include "io/serving/served_models.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// A model of a pool, as configured.
struct PooledModelConfig {
  EngineConfig config;               ///< its name is served_model_name
  std::vector<std::string> aliases;  ///< other names
  /// Seconds that the model stays loaded without work; below 0: until another model needs its memory.
  double keep_alive = -1;
  bool preload = false;  ///< whether the model is loaded at start
  std::string where;     ///< place where the model was configured; error messages begin with it
};

struct ModelPoolConfig {
  std::vector<PooledModelConfig> models;
  std::int32_t max_loaded = 3;  ///< number of models that may be loaded at a time
  /// GiB that all loaded models may take together on each device; 0: the memory that is free at start.
  double memory = 0;
  /// GiB of this memory in which copies of weights of unloaded models stay; below 0: a quarter of it.
  double kept_memory = -1;
  double load_timeout = 300;       ///< maximum number of seconds that a request waits for its model
  std::int32_t max_waiting = 256;  ///< number of requests that may wait for one model
};

/// Several models inside the caller's actor system, loaded when they are needed. Each has a router that always exists
/// (actors/model_pool.hpp). When `supervisor` gets an exit message, all actors of the pool end. When it ends by itself,
/// the pool has failed.
struct ModelPoolHandle {
  std::vector<serving::ServedModel> models;
  caf::actor supervisor;
};

/// Reads the files of every model except the weights, sizes its engine, and spawns the pool. Models with `preload`
/// begin to load. `setup`: for each engine; its device is ignored. Errors: every problem of every model at once.
tl::expected<ModelPoolHandle, std::vector<Error>> spawn_model_pool(caf::actor_system& system, ModelPoolConfig config,
                                                                   const EngineSetup& setup = {});

/// Ends the pool and its engines. Returns at once.
void end_model_pool(const ModelPoolHandle& pool);

}  // namespace pagoda
