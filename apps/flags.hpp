#pragma once

/// Flags that several subcommands share. A flag is its config key with dashes, and wins over the config file.

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/flag_values.hpp"
#include "engine/config.hpp"
#include "engine/request/generate_request.hpp"
#include "io/config_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Binds config keys to flags and to a config file. The bound fields must outlive it.
class ConfigFlags {
 public:
  /// Adds --config to `app`.
  explicit ConfigFlags(CLI::App& app);

  template <class T>
  void add(const std::string& key, T& field, const std::string& help) {
    CLI::Option* option = nullptr;
    const auto flag = "--" + with_dashes(key);
    if constexpr (std::is_same_v<T, bool>) {
      option = add_switch(app_, with_dashes(key), field, help);
    } else if constexpr (std::is_enum_v<T>) {
      option = add_choice(app_, flag, field, help);
    } else if constexpr (std::is_arithmetic_v<T>) {
      option = add_number(app_, flag, field, help);
    } else {
      option = app_.add_option(flag, field, help)->capture_default_str();
    }
    bindings_.push_back({key, option, [key, &field](const io::ConfigFile& file) { return file.read(key, field); }});
  }

  /// Every key of an EngineConfig or ServerConfig.
  template <class Config>
  void add_all(Config& config) {
    io::visit_fields(config, [this](const char* key, auto& field, const char* help) { add(key, field, help); });
  }

  /// Call once the command line is parsed: fills the fields that no flag has set from the config file, if there is one.
  /// Errors: as ConfigFile; bad_config for a key that nobody knows.
  Status read_file();

 private:
  struct Binding {
    std::string key;
    CLI::Option* flag;
    std::function<Status(const io::ConfigFile&)> read;
  };
  static std::string with_dashes(std::string key);

  CLI::App& app_;
  std::string path_;
  std::vector<Binding> bindings_;
};

/// --log-level, bound to its key.
void add_log_level(ConfigFlags& flags, std::string& level);

/// Sends logs to stderr at `level`. Error: bad_config for a word that is no level.
Status start_logging(const std::string& level);

/// The sampling fields of a request as flags.
void add_sampling_flags(CLI::App& app, GenerateRequest& request);

/// What commands that run an engine have in common: its keys as flags, --config and --log-level.
struct EngineFlags {
  explicit EngineFlags(CLI::App& app, std::string default_log_level);

  EngineConfig config;
  std::string log_level;
  ConfigFlags flags;

  /// After parsing: reads the config file, starts logging, validates. Returns every problem at once. That the process
  /// may take no memory at all is one as well.
  std::vector<Error> finish();
};

}  // namespace pagoda::apps
