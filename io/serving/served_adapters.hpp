#pragma once

/// The adapters of a served model, as its servers know them: names that requests may use, and changes of them.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

class AdapterChange;
using SharedAdapterChange = std::shared_ptr<AdapterChange>;

/// Thread-safe: all servers of a process share it. The engine has the last word about each request; this list is here
/// so that a server need not ask the engine for each name.
class ServedAdapters : public std::enable_shared_from_this<ServedAdapters> {
 public:
  struct Adapter {
    std::int64_t id = 0;  ///< index for llama-server's clients; never used again
    std::string name;
    std::string path;
  };

  /// Returns the adapters of an engine with this configuration; null if requests cannot name adapters. Errors: as
  /// parse_lora_modules; bad_config if lora_root is needed and is not a folder.
  static Result<std::shared_ptr<ServedAdapters>> of(const EngineConfig& config);

  /// `root`: folder below which the adapters of clients must be; empty: clients cannot change the list.
  ServedAdapters(std::vector<Adapter> adapters, std::string root);

  /// Returns the adapters that requests may name, by id.
  std::vector<Adapter> list() const;
  bool contains(std::string_view name) const;

  // A change begins here, goes to the engine, and is settled with the engine's answer. Meanwhile no other change of the
  // name can begin.

  /// Checks the name and the path. The result has the path with its links resolved. Errors: invalid_request, with the
  /// param lora_name or lora_path.
  Result<SharedAdapterChange> begin_add(const std::string& name, const std::string& path);
  /// From now on no request may name the adapter. Errors: unknown_adapter, with the param lora_name; invalid_request if
  /// the list cannot be changed.
  Result<SharedAdapterChange> begin_remove(const std::string& name);

 private:
  friend class AdapterChange;
  enum class State : std::uint8_t { adding, ready, removing };
  struct Entry {
    Adapter adapter;
    State state = State::ready;
  };

  Entry* find(std::string_view name);
  Status check_may_change() const;
  /// `error`: of the engine's answer; absent if it is done.
  void settle(const AdapterChange& change, std::optional<ErrorCode> error);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::int64_t next_id_ = 0;
  const std::string root_;
};

/// A change that has begun. If it is destroyed without an answer, the engine has not received it, or has ended.
class AdapterChange {
 public:
  enum class Kind : std::uint8_t { add, remove };
  AdapterChange(std::shared_ptr<ServedAdapters> owner, Kind changed, ServedAdapters::Adapter subject)
      : kind(changed), adapter(std::move(subject)), owner_(std::move(owner)) {}
  ~AdapterChange();
  AdapterChange(const AdapterChange&) = delete;
  AdapterChange& operator=(const AdapterChange&) = delete;

  /// Call once, with the engine's answer.
  void settle(const Status& answer);

  const Kind kind;
  const ServedAdapters::Adapter adapter;

 private:
  std::shared_ptr<ServedAdapters> owner_;  ///< null once settled
};

/// Returns the canonical path of an adapter that a client names. A relative path is relative to `root`. Links and ".."
/// are resolved before the path is compared with `root`. Errors: invalid_request, with the param lora_path, for a path
/// that is not below `root`, for a folder with a link that leads out of `root`, and for a path that does not exist.
Result<std::filesystem::path> adapter_path(const std::filesystem::path& root, const std::string& path);

}  // namespace pagoda::serving
