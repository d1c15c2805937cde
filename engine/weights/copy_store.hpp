#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/weights/kept_copies.hpp"
#include "kernels/device.hpp"

namespace pagoda::weights {

/// Keeps copies of weights (packed, quantised, converted) of models that one process loads and unloads, on devices that
/// share the host's memory. The copies of an unloaded model are kept while there is room; those least recently used are
/// dropped first. A model that is loaded again uses its kept copies. Thread-safe.
class CopyStore : public std::enable_shared_from_this<CopyStore> {
 public:
  /// `bytes`: limit of models in use and kept copies together. `max_kept`: limit of the kept copies.
  CopyStore(std::int64_t bytes, std::int64_t max_kept) : bytes_(bytes), max_kept_(max_kept) {}

  /// The copies of a model in use. The use begins with the load and ends when this object and all memory that came from
  /// it are gone.
  class ModelCopies final : public KeptCopies, public std::enable_shared_from_this<ModelCopies> {
   public:
    ~ModelCopies() override;
    ModelCopies(const ModelCopies&) = delete;
    ModelCopies& operator=(const ModelCopies&) = delete;

    std::optional<CopyMemory> find(std::string_view key, std::size_t bytes, CopyKind kind) override;
    std::int64_t filled_bytes() const override;
    /// Copies that are not complete are dropped when the use ends.
    void mark_complete() override;

   private:
    friend class CopyStore;
    struct Contents {
      std::string version;
      std::map<std::string, kernels::Buffer, std::less<>> by_key;
      std::int64_t bytes = 0;
      bool are_complete = false;
      std::uint64_t last_used = 0;
    };
    ModelCopies(std::shared_ptr<CopyStore> store, std::size_t model, std::int64_t bytes,
                std::shared_ptr<kernels::Device> device, std::shared_ptr<Contents> copies);

    const std::shared_ptr<CopyStore> store_;
    const std::size_t model_;
    const std::int64_t bytes_;
    const std::shared_ptr<kernels::Device> device_;
    const std::shared_ptr<Contents> copies_;
  };

  /// Begins the use of `model`, which must not be in use. `bytes`: all memory that the model will take, its copies
  /// included. Kept copies are reused if they were made from the same `version` of the model's files.
  std::shared_ptr<ModelCopies> use(std::size_t model, std::int64_t bytes, std::string version,
                                   std::shared_ptr<kernels::Device> device);

  /// Returns the bytes of the copies of models that are not in use.
  std::int64_t kept_bytes() const;

 private:
  /// Drops kept copies until the limits hold.
  void make_room();
  void end(const ModelCopies& use);

  const std::int64_t bytes_;
  const std::int64_t max_kept_;
  mutable std::mutex mutex_;  // guards the fields below and the copies of models in use
  std::int64_t in_use_ = 0;
  std::int64_t kept_bytes_ = 0;
  std::uint64_t clock_ = 0;
  std::map<std::size_t, std::shared_ptr<ModelCopies::Contents>> kept_;  // by model
};

}  // namespace pagoda::weights
