#include "apps/adapter_flag.hpp"

#include <CLI/CLI.hpp>

#include "apps/flags.hpp"
#include "io/serving/nearest_model.hpp"
#include "io/serving/served_adapters.hpp"

namespace pagoda::apps {

void add_adapter_flag(CLI::App& app, std::string& adapter) {
  add_text(app, "--adapter", adapter,
           "Name of the adapter, one of --lora-modules and --prompt-adapters, that every request uses");
}

void add_adapters_flag(CLI::App& app, std::vector<std::string>& adapters, const std::string& help) {
  app.add_option("--adapter", adapters, help)->type_name("TEXT")->delimiter(',')->allow_extra_args(false);
}

Status check_adapters(const EngineConfig& config, std::span<const std::string> names) {
  if (names.empty()) return {};
  const auto served = serving::ServedAdapters::of(config);
  if (!served) return fail(served.error());
  std::vector<std::string> known;
  if (*served != nullptr) {
    for (auto& adapter : (*served)->list()) known.push_back(std::move(adapter.name));
  }
  for (const std::string& name : names) {
    if (*served != nullptr && (*served)->contains(name)) continue;
    std::string listed;
    for (const auto& one : known) listed += (listed.empty() ? ": " : ", ") + one;
    const auto nearest = serving::nearest_model(name, known);
    return fail(ErrorCode::bad_config,
                "--adapter " + name +
                    " is none of --lora-modules (with --enable-lora) and --prompt-adapters (with "
                    "--enable-prompt-adapter)" +
                    listed + (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?"),
                "adapter");
  }
  return {};
}

Status check_adapter(const EngineConfig& config, const std::string& name) {
  return check_adapters(config, std::span(&name, name.empty() ? 0 : 1));
}

}  // namespace pagoda::apps
