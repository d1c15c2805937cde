#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/adapters/adapter_ref.hpp"
#include "engine/adapters/bound_adapter.hpp"
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

  /// Returns an adapter. Reads and binds it if it is not loaded; adapters are loaded one after the other. An adapter
  /// keeps its memory while a pointer to it is left. Errors: those of the reader and of BoundAdapter::create. The
  /// message has the adapter's name.
  Result<SharedAdapter> load(const AdapterRef& adapter);
  /// Forgets an adapter.
  void unload(AdapterId id);

 private:
  SharedAdapter find(AdapterId id) const;
  Result<SharedAdapter> bind(const AdapterRef& adapter) const;

  Reader read_;
  const layers::AdapterModules& modules_;
  kernels::Device& device_;
  std::mutex loading_;        // held while an adapter is loaded
  mutable std::mutex mutex_;  // guards loaded_
  std::map<AdapterId, SharedAdapter> loaded_;
};

}  // namespace pagoda::adapters
