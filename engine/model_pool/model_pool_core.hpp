#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::model_pool {

/// A model by its place in ModelPoolConfig::models.
using ModelIndex = std::size_t;

/// Of a keep-alive: the model stays until another needs its place.
inline constexpr TimeUs kForever = -1;

struct PooledModel {
  std::int64_t bytes = 0;           ///< that it takes of its device while it is loaded
  std::size_t device = 0;           ///< place in ModelPoolConfig::device_bytes
  TimeUs keep_alive_us = kForever;  ///< how long it stays without work
};

struct ModelPoolConfig {
  std::vector<PooledModel> models;
  std::vector<std::int64_t> device_bytes;  ///< that the models of a device may take together
  std::int32_t max_loaded = 1;             ///< models at a time, those that load or unload included
  /// So long requests wait for a model that has no room while others have work; then the one of those that was asked
  /// for least lately takes nothing new, and goes when it has ended what it has.
  TimeUs patience_us = 0;
};

/// Which models are loaded: decided here, done elsewhere. A model that is wanted is loaded as soon as there is room.
/// Room is made by the models that have no work, least recently used first, and by one that has work only when the
/// patience is over. Those that are wanted have their turn in order. A model larger than its device's share is loaded
/// alone.
class ModelPoolCore {
 public:
  struct Release {
    ModelIndex model = 0;
    bool hold = false;  ///< it takes no new work and answers once it has none; else it answers at once
  };
  /// What is to be done now.
  struct Effects {
    std::vector<ModelIndex> loads;  ///< each is answered by load_ended
    std::vector<Release> releases;  ///< each is answered by released
  };

  explicit ModelPoolCore(ModelPoolConfig config);

  /// Somebody waits for the model, which is not loaded.
  Effects want(ModelIndex model, TimeUs now);
  /// Nobody waits for it any more. One that loads already goes on.
  Effects unwanted(ModelIndex model, TimeUs now);
  /// One that is loaded counts as busy until idle() tells.
  Effects load_ended(ModelIndex model, bool is_loaded, TimeUs now);
  /// It has work, or none any more.
  Effects busy(ModelIndex model, TimeUs now);
  Effects idle(ModelIndex model, TimeUs now);
  /// The answer to a release: it has no work and takes none, or it has.
  Effects released(ModelIndex model, bool gives_up, TimeUs now);
  /// Its memory is free: after it was released, or because it has failed.
  Effects gone(ModelIndex model, TimeUs now);
  /// From now on, until it is gone. One that is not loaded, and does not load, is as it was configured.
  Effects keep_alive(ModelIndex model, TimeUs keep_alive_us, TimeUs now);
  /// Time has passed.
  Effects look(TimeUs now);

  /// When look() may have something to say; nothing: not before another event.
  std::optional<TimeUs> next_look() const;

  bool is_wanted(ModelIndex model) const { return at(model).state == State::wanted; }
  /// When it would be unloaded, if it is idle and does not stay.
  std::optional<TimeUs> expiry(ModelIndex model) const;

 private:
  enum class State : std::uint8_t { absent, wanted, loading, idle, busy, asked, held, unloading };
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
  /// Taken by the models that are in memory; `staying`: less those that are on their way out.
  Room taken(bool staying) const;
  bool fits(ModelIndex model, const Room& taken) const;
  /// The least recently used of those in `state` whose going would help `model`.
  std::optional<ModelIndex> victim(ModelIndex model, State state, const Room& taken) const;
  void make_room(TimeUs now, Effects& effects);
  void expire(TimeUs now, Effects& effects);
  Effects effects_of(TimeUs now);

  ModelPoolConfig config_;
  std::vector<Model> models_;
  std::deque<ModelIndex> wanted_;  ///< in the order in which they were
};

}  // namespace pagoda::model_pool
