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

/// A model of a pool.
struct PooledModelConfig {
  EngineConfig config;               ///< served_model_name is its name
  std::vector<std::string> aliases;  ///< other names
  double keep_alive = -1;            ///< seconds that it stays without work; below 0: until another needs its place
  bool preload = false;              ///< at start
  std::string where;                 ///< what messages call it: where it was configured
};

struct ModelPoolConfig {
  std::vector<PooledModelConfig> models;
  std::int32_t max_loaded = 3;  ///< models at a time
  double memory = 0;            ///< GiB that they may take together on each device; 0 = what is free at start
  /// GiB of those in which copies of weights stay whose models are not loaded; below 0: a quarter
  double kept_memory = -1;
  double load_timeout = 300;       ///< seconds that a request waits for its model at most
  std::int32_t max_waiting = 256;  ///< requests that wait for one model
};

/// Several models inside the caller's actor system, loaded when they are needed. Each has a router that is always
/// there (actors/model_pool.hpp). When `supervisor` is told to exit, all of it ends; when it ends by itself, the pool
/// cannot go on.
struct ModelPoolHandle {
  std::vector<serving::ServedModel> models;
  caf::actor supervisor;
};

/// Reads the files of every model, as far as can be without its weights, sizes its engine, and spawns the pool; those
/// that are to be preloaded begin to. `setup`: of each engine; its device is not looked at. Errors: every problem of
/// every model at once.
tl::expected<ModelPoolHandle, std::vector<Error>> spawn_model_pool(caf::actor_system& system, ModelPoolConfig config,
                                                                   const EngineSetup& setup = {});

/// Ends the pool and its engines. Returns at once.
void end_model_pool(const ModelPoolHandle& pool);

}  // namespace pagoda
