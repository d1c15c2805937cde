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

/// The copies of weights (packed, quantised, converted) of models that come and go in one process, on devices that
/// share the host's memory. Those of a model that has gone are kept while there is room for them, the ones that were
/// used last the longest; so it comes back without making them again. Thread-safe.
class CopyStore : public std::enable_shared_from_this<CopyStore> {
 public:
  /// `bytes`: that models in use and copies of others may take together. `most_kept`: that such copies may, of those.
  CopyStore(std::int64_t bytes, std::int64_t most_kept) : bytes_(bytes), most_kept_(most_kept) {}

  /// The copies of a model from its load on; it is in use until this and all memory that came from it are gone.
  class Use final : public KeptCopies, public std::enable_shared_from_this<Use> {
   public:
    ~Use() override;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    std::optional<Place> find(std::string_view key, std::size_t bytes) override;
    std::int64_t made_bytes() const override;
    /// All copies that were found are made: only then are they kept.
    void seal();

   private:
    friend class CopyStore;
    struct Copies {
      std::string version;
      std::map<std::string, kernels::Buffer, std::less<>> by_key;
      std::int64_t bytes = 0;
      bool are_made = false;
      std::uint64_t last_used = 0;
    };
    Use(std::shared_ptr<CopyStore> store, std::size_t model, std::int64_t bytes,
        std::shared_ptr<kernels::Device> device, std::shared_ptr<Copies> copies);

    const std::shared_ptr<CopyStore> store_;
    const std::size_t model_;
    const std::int64_t bytes_;
    const std::shared_ptr<kernels::Device> device_;
    const std::shared_ptr<Copies> copies_;
  };

  /// A load of `model` begins, which is not in use and is to take `bytes` in all, its copies included. What is kept of
  /// it is of use if it was made of the same `version` of its files.
  std::shared_ptr<Use> use(std::size_t model, std::int64_t bytes, std::string version,
                           std::shared_ptr<kernels::Device> device);

  /// Of models that are not in use.
  std::int64_t kept_bytes() const;

 private:
  /// Lets go of what there is no room for.
  void make_room();
  void end(const Use& use);

  const std::int64_t bytes_;
  const std::int64_t most_kept_;
  mutable std::mutex mutex_;  // of what follows, and of the copies of models in use
  std::int64_t in_use_ = 0;
  std::int64_t kept_bytes_ = 0;
  std::uint64_t clock_ = 0;
  std::map<std::size_t, std::shared_ptr<Use::Copies>> kept_;  // by model
};

}  // namespace pagoda::weights
