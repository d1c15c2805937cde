#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/adapters/bound_adapter.hpp"
#include "engine/step/adapter_ref.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

using SharedAdapter = std::shared_ptr<const BoundAdapter>;

/// The adapters that one model has in its device's memory, by their ids. Thread-safe.
class AdapterTable {
 public:
  /// Reads the files of an adapter. Errors: bad_file, unsupported, io_failed.
  using Reader = std::function<Result<Adapter>(const std::string& path)>;

  /// `modules`: those of the model (Model::adapter_modules). They must outlive the table, and so must the device.
  AdapterTable(Reader read, const layers::AdapterModules& modules, kernels::Device& device)
      : read_(std::move(read)), modules_(modules), device_(device) {}

  /// Returns an adapter. Reads and binds it when it is asked for the first time; adapters are loaded one after the
  /// other. An adapter keeps its memory while a pointer to it is left. Errors (bad_adapter): the reader or
  /// BoundAdapter::create fails, or the files are not those of `adapter.facts`. The error is the same each time: what a
  /// row computes without its adapter must not count for a later row with the same id. The message has the adapter's
  /// name. An adapter that was unloaded is an error too: only rows of requests that have ended still ask for it.
  Result<SharedAdapter> load(const AdapterRef& adapter);
  /// Forgets an adapter for good: its id is never used again.
  void unload(AdapterId id);

 private:
  std::optional<Result<SharedAdapter>> find(AdapterId id) const;
  std::optional<Result<SharedAdapter>> find_locked(AdapterId id) const;
  Result<SharedAdapter> bind(const AdapterRef& adapter) const;

  Reader read_;
  const layers::AdapterModules& modules_;
  kernels::Device& device_;
  std::mutex loading_;        // held while an adapter is loaded
  mutable std::mutex mutex_;  // guards the fields below
  std::map<AdapterId, Result<SharedAdapter>> known_;
  std::map<AdapterId, AdapterId> unloaded_;  // last id of each run of ids that were unloaded, by its first
};

}  // namespace pagoda::adapters
