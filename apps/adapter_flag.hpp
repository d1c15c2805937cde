#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "kernels/result.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace pagoda::apps {

/// Adds --adapter: the name of the adapter that every request of a command uses; empty: none.
void add_adapter_flag(CLI::App& app, std::string& adapter);

/// Adds --adapter with several names, separated by commas. The flag may be given several times.
void add_adapters_flag(CLI::App& app, std::vector<std::string>& adapters, const std::string& help);

/// Returns an error if the engine does not load an adapter of this name at start. Errors: bad_config, with the param
/// adapter; those of ServedAdapters::of.
Status check_adapters(const EngineConfig& config, std::span<const std::string> names);
/// Checks one name; an empty one is no adapter.
Status check_adapter(const EngineConfig& config, const std::string& name);

}  // namespace pagoda::apps
