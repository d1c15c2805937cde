#pragma once

/// Flags that several subcommands share. The name of a flag is its config key with dashes. A flag overrides the config
/// file.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config.hpp"
#include "engine/request/generate_request.hpp"
#include "io/config_file.hpp"
#include "io/http/server_config.hpp"
#include "io/json_lines/server_config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace CLI {
class App;  // declared only, because the header of CLI11 takes long to compile
class Option;
}  // namespace CLI

namespace pagoda::apps {

/// Binds config keys to flags and to a config file. The bound fields must outlive this object.
class ConfigFlags {
 public:
  /// Adds --config to `app`.
  explicit ConfigFlags(CLI::App& app);

  /// Adds one key. The field is a string, boolean, integer, double, JsonText, or an enum that has io::EnumWords.
  template <class T>
  void add(const std::string& key, T& field, const std::string& help);

  /// Adds the keys in `keys`; all keys if it is empty.
  void add_all(EngineConfig& config, std::span<const std::string_view> keys = {});
  /// Adds all keys.
  void add_all(json_lines::ServerConfig& config);
  /// Adds the keys in `keys`; all keys if it is empty.
  void add_all(http::ServerConfig& config, std::span<const std::string_view> keys = {});

  /// Lets `key` also be given as an argument without a flag. The key must have been added, with a text field.
  void also_positional(const std::string& key, const std::string& name, std::string& field, const std::string& help);

  /// Adds a flag with texts that may be given several times. `field` gets all of them, separated by commas.
  void bind_list(const std::string& key, std::string& field, const std::string& help);

  /// Fills the fields that no flag has set from the config file, if there is one. Call after the command line was
  /// parsed. Errors: as ConfigFile; bad_config for an unknown key, and for a key that is given twice.
  Status read_file();

  /// Returns whether a flag or the config file has set `key`. Call after read_file.
  bool is_given(const std::string& key) const;

  /// Returns the flag that has set `key` on the command line, as it was written; empty: none has.
  std::string flag_given(const std::string& key) const;

 private:
  struct Binding {
    std::string key;
    CLI::Option* flag;
    CLI::Option* positional = nullptr;  ///< the positional argument for this key
    std::function<Status(const io::ConfigFile&)> read;
  };
  static std::string with_dashes(std::string key);

  CLI::App& app_;
  std::string path_;
  std::vector<Binding> bindings_;
  std::vector<std::string> keys_of_file_;
};

/// Add a flag or positional argument with a text, and a flag without a value.
void add_text(CLI::App& app, const std::string& name, std::string& field, const std::string& help);
void add_flag(CLI::App& app, const std::string& name, bool& field, const std::string& help);

/// Adds --log-level, bound to its key.
void add_log_level(ConfigFlags& flags, std::string& level);

/// Sends logs to stderr at `level`. Error: bad_config for an unknown level.
Status start_logging(const std::string& level);

/// Adds the sampling fields of a request as flags.
void add_sampling_flags(CLI::App& app, GenerateRequest& request);

/// Returns defaults for a command that serves only its own user: memory for KV blocks is taken from the system when
/// blocks are used, because taking all of it at start needs seconds.
EngineConfig lazy_memory();

/// Common flags of commands that run an engine: the engine's keys, --config and --log-level.
struct EngineFlags {
  /// `keys`: the keys that get flags, for a command that runs a part of an engine; empty: all.
  EngineFlags(CLI::App& app, std::string default_log_level, const EngineConfig& defaults = {},
              std::span<const std::string_view> keys = {});

  EngineConfig config;
  bool default_touch_memory;
  bool gpu_has_worker_process = false;  ///< default of worker_processes on a GPU
  std::string log_level;
  ConfigFlags flags;

  /// Reads the config file, starts logging and validates. Call after parsing. Returns all problems at once. One of them
  /// is that the process may take no memory at all.
  std::vector<Error> finish();

  /// Returns the setup of this command's engine: progress on standard error, and this program as worker.
  EngineSetup setup() const;
};

}  // namespace pagoda::apps
