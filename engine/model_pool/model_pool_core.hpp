#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/model_pool/residency.hpp"
#include "engine/types.hpp"

namespace pagoda::model_pool {

/// Index of a model in ModelPoolConfig::models.
using ModelIndex = std::size_t;

struct PooledModel {
  std::int64_t bytes = 0;           ///< memory of its device that it takes while it is loaded
  std::size_t device = 0;           ///< index in ModelPoolConfig::device_bytes
  TimeUs keep_alive_us = kForever;  ///< time that it stays loaded without work
};

struct ModelPoolConfig {
  std::vector<PooledModel> models;
  std::vector<std::int64_t> device_bytes;  ///< memory that the models of a device may take together
  std::int32_t max_loaded = 1;             ///< models at a time, including those that load or unload
  /// Time that requests wait for a model without room while other models have work. After that time the least recently
  /// used of these takes no new work, and is unloaded when its work has ended.
  TimeUs patience_us = 0;
};

/// Decides which models are loaded; its owner loads and unloads them. A wanted model is loaded as soon as there is
/// room. Models without work make room, least recently used first; a model with work makes room only when the patience
/// is over. Wanted models have their turn in order. A model larger than its device's share is loaded alone.
class ModelPoolCore {
 public:
  struct Release {
    ModelIndex model = 0;
    bool drain = false;  ///< true: it takes no new work and answers once it has none; false: it answers at once
  };
  /// Actions that the owner must take now.
  struct Effects {
    std::vector<ModelIndex> loads;  ///< each is answered by load_ended
    std::vector<Release> releases;  ///< each is answered by released
  };

  explicit ModelPoolCore(ModelPoolConfig config);

  /// Call when work waits for a model that is not loaded.
  Effects wanted(ModelIndex model, TimeUs now);
  /// Call when no work waits for the model any more. A load that has begun goes on.
  Effects unwanted(ModelIndex model, TimeUs now);
  /// Call when a load has ended. A loaded model counts as busy until idle() is called.
  Effects load_ended(ModelIndex model, bool is_loaded, TimeUs now);
  /// Call when the model has work, and when it has none any more.
  Effects busy(ModelIndex model, TimeUs now);
  Effects idle(ModelIndex model, TimeUs now);
  /// Call with the answer to a release. `gives_up`: whether the model has no work and takes none; otherwise it has
  /// work.
  Effects released(ModelIndex model, bool gives_up, TimeUs now);
  /// Call when the model's memory is free: after it was released, or because the model has failed.
  Effects gone(ModelIndex model, TimeUs now);
  /// Sets the keep-alive of a model until it is gone. It changes nothing for a model that is neither loaded nor
  /// loading.
  Effects keep_alive(ModelIndex model, TimeUs keep_alive_us, TimeUs now);
  /// Call when time has passed.
  Effects on_timer(TimeUs now);

  /// Returns when on_timer() may have effects; nothing if it has none before another event.
  std::optional<TimeUs> next_timer() const;

  bool is_wanted(ModelIndex model) const { return at(model).state == State::wanted; }
  TimeUs keep_alive_us(ModelIndex model) const { return at(model).keep_alive_us; }
  /// Returns when the model will be unloaded, if it is idle and its keep-alive ends.
  std::optional<TimeUs> expiry(ModelIndex model) const;

 private:
  enum class State : std::uint8_t { absent, wanted, loading, idle, busy, asked, draining, unloading };
  struct Model {
    State state = State::absent;
    TimeUs keep_alive_us = kForever;
    TimeUs last_used = 0;  ///< when it was last known to have work
    TimeUs wanted_since = 0;
  };
  struct Room {
    std::int32_t models = 0;
    std::vector<std::int64_t> bytes;
  };

  Model& at(ModelIndex model) { return models_.at(model); }
  const Model& at(ModelIndex model) const { return models_.at(model); }
  /// Returns the room that models in memory take; with `staying`, without the models that are to be unloaded.
  Room taken(bool staying) const;
  bool fits(ModelIndex model, const Room& taken) const;
  /// Returns the least recently used model in `state` whose end would help `model`; nothing if there is none.
  std::optional<ModelIndex> victim(ModelIndex model, State state, const Room& taken) const;
  void make_room(TimeUs now, Effects& effects);
  void expire(TimeUs now, Effects& effects);
  Effects effects_of(TimeUs now);

  ModelPoolConfig config_;
  std::vector<Model> models_;
  std::deque<ModelIndex> wanted_;  ///< in the order in which they became wanted
};

}  // namespace pagoda::model_pool
