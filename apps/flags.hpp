#pragma once

/// Flags that several subcommands share. A flag is its config key with dashes, and wins over the config file.

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
class App;  // whoever includes its header compiles a good part of it
class Option;
}  // namespace CLI

namespace pagoda::apps {

/// Binds config keys to flags and to a config file. The bound fields must outlive it.
class ConfigFlags {
 public:
  /// Adds --config to `app`.
  explicit ConfigFlags(CLI::App& app);

  /// The fields are strings, booleans, integers, doubles and enums that have io::EnumWords.
  template <class T>
  void add(const std::string& key, T& field, const std::string& help);

  /// Those of `keys`; every key where there are none.
  void add_all(EngineConfig& config, std::span<const std::string_view> keys = {});
  /// Every key of it.
  void add_all(json_lines::ServerConfig& config);
  /// Those of `keys`; every key where there are none.
  void add_all(http::ServerConfig& config, std::span<const std::string_view> keys = {});

  /// Lets `key`, which has been added and whose field is a text, be given as an argument without a flag too.
  void also_positional(const std::string& key, const std::string& name, std::string& field, const std::string& help);

  /// A flag with texts that may be given several times: `field` is all of them, with commas between.
  void bind_list(const std::string& key, std::string& field, const std::string& help);

  /// Call once the command line is parsed: fills the fields that no flag has set from the config file, if there is one.
  /// Errors: as ConfigFile; bad_config for a key that nobody knows, and for one that is given twice.
  Status read_file();

  /// Whether a flag or the config file has set `key`. Behind read_file.
  bool is_given(const std::string& key) const;

  /// The flag that has set `key` on the command line, as it stands there; empty: none has.
  std::string flag_given(const std::string& key) const;

 private:
  struct Binding {
    std::string key;
    CLI::Option* flag;
    CLI::Option* positional = nullptr;  ///< the same without a flag
    std::function<Status(const io::ConfigFile&)> read;
  };
  static std::string with_dashes(std::string key);

  CLI::App& app_;
  std::string path_;
  std::vector<Binding> bindings_;
  std::vector<std::string> keys_of_file_;
};

/// A flag or positional argument with a text, and a flag without a value.
void add_text(CLI::App& app, const std::string& name, std::string& field, const std::string& help);
void add_flag(CLI::App& app, const std::string& name, bool& field, const std::string& help);

/// --log-level, bound to its key.
void add_log_level(ConfigFlags& flags, std::string& level);

/// Sends logs to stderr at `level`. Error: bad_config for a word that is no level.
Status start_logging(const std::string& level);

/// The sampling fields of a request as flags.
void add_sampling_flags(CLI::App& app, GenerateRequest& request);

/// For a command that runs for its own user alone: the memory for KV blocks is taken from the system as they are used,
/// not all at start, which takes seconds.
EngineConfig lazy_memory();

/// What commands that run an engine have in common: its keys as flags, --config and --log-level.
struct EngineFlags {
  /// `keys`: the flags there are, for a command that runs a part of an engine; all where it is empty.
  EngineFlags(CLI::App& app, std::string default_log_level, const EngineConfig& defaults = {},
              std::span<const std::string_view> keys = {});

  EngineConfig config;
  bool default_touch_memory;
  bool gpu_has_worker_process = false;  ///< unless told
  std::string log_level;
  ConfigFlags flags;

  /// After parsing: reads the config file, starts logging, validates. Returns every problem at once. That the process
  /// may take no memory at all is one as well.
  std::vector<Error> finish();

  /// What an engine of this command is made with: progress on standard error, and this program as worker.
  EngineSetup setup() const;
};

}  // namespace pagoda::apps
