#include "engine/model_pool/model_pool_core.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::model_pool {

ModelPoolCore::ModelPoolCore(ModelPoolConfig config) : config_(std::move(config)), models_(config_.models.size()) {
  PAGODA_ASSERT(config_.max_loaded > 0, "a model has room");
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    PAGODA_ASSERT(config_.models[i].device < config_.device_bytes.size(), "a model's device is known");
    models_[i].keep_alive_us = config_.models[i].keep_alive_us;
  }
}

ModelPoolCore::Effects ModelPoolCore::wanted(ModelIndex model, TimeUs now) {
  if (at(model).state == State::absent) {
    at(model).state = State::wanted;
    at(model).wanted_since = now;
    wanted_.push_back(model);
  } else if (at(model).state == State::unloading && std::ranges::find(wanted_, model) == wanted_.end()) {
    at(model).wanted_since = now;  // it is loaded again once it is gone
    wanted_.push_back(model);
  }
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::unwanted(ModelIndex model, TimeUs now) {
  if (std::erase(wanted_, model) > 0 && at(model).state == State::wanted) at(model).state = State::absent;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::load_ended(ModelIndex model, bool is_loaded, TimeUs now) {
  PAGODA_ASSERT(at(model).state == State::loading, "a load ends that has begun");
  at(model).state = is_loaded ? State::busy : State::absent;  // busy with the work that waits for it
  at(model).last_used = now;
  if (!is_loaded) at(model).keep_alive_us = config_.models[model].keep_alive_us;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::busy(ModelIndex model, TimeUs now) {
  at(model).last_used = now;
  if (at(model).state == State::idle) at(model).state = State::busy;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::idle(ModelIndex model, TimeUs now) {
  at(model).last_used = now;
  if (at(model).state == State::busy) at(model).state = State::idle;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::released(ModelIndex model, bool gives_up, TimeUs now) {
  auto& state = at(model).state;
  if (state == State::asked || state == State::draining) state = gives_up ? State::unloading : State::busy;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::gone(ModelIndex model, TimeUs now) {
  const bool comes_back = std::ranges::find(wanted_, model) != wanted_.end();
  at(model).state = comes_back ? State::wanted : State::absent;
  at(model).keep_alive_us = config_.models[model].keep_alive_us;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::keep_alive(ModelIndex model, TimeUs keep_alive_us, TimeUs now) {
  const State state = at(model).state;
  const bool is_there = state != State::absent && state != State::wanted && state != State::unloading;
  if (is_there) at(model).keep_alive_us = keep_alive_us;
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::on_timer(TimeUs now) {
  return effects_of(now);
}

ModelPoolCore::Effects ModelPoolCore::effects_of(TimeUs now) {
  Effects effects;
  expire(now, effects);
  make_room(now, effects);
  return effects;
}

std::optional<TimeUs> ModelPoolCore::expiry(ModelIndex model) const {
  const auto& kept = at(model);
  if (kept.state != State::idle || kept.keep_alive_us == kForever) return {};
  return kept.last_used + kept.keep_alive_us;
}

std::optional<TimeUs> ModelPoolCore::next_timer() const {
  std::optional<TimeUs> next;
  const auto consider = [&](TimeUs time) { next = std::min(next.value_or(time), time); };
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    if (const auto time = expiry(i)) consider(*time);
  }
  // The first model in the queue has no room. Its patience matters while a busy model could make room.
  if (!wanted_.empty()) {
    const ModelIndex first = wanted_.front();
    const Room staying = taken(/*staying=*/true);
    if (!fits(first, staying) && victim(first, State::busy, staying)) {
      consider(at(first).wanted_since + config_.patience_us);
    }
  }
  return next;
}

void ModelPoolCore::expire(TimeUs now, Effects& effects) {
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    const auto time = expiry(i);
    if (!time || *time > now) continue;
    models_[i].state = State::asked;
    effects.releases.push_back({i, false});
  }
}

ModelPoolCore::Room ModelPoolCore::taken(bool staying) const {
  Room room{0, std::vector<std::int64_t>(config_.device_bytes.size())};
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    const State state = models_[i].state;
    const bool goes = state == State::asked || state == State::draining || state == State::unloading;
    if (state == State::absent || state == State::wanted || (staying && goes)) continue;
    ++room.models;
    room.bytes[config_.models[i].device] += config_.models[i].bytes;
  }
  return room;
}

bool ModelPoolCore::fits(ModelIndex model, const Room& taken) const {
  const auto& needed = config_.models[model];
  const auto bytes = taken.bytes[needed.device];
  return taken.models < config_.max_loaded &&
         (bytes == 0 || bytes + needed.bytes <= config_.device_bytes[needed.device]);
}

std::optional<ModelIndex> ModelPoolCore::victim(ModelIndex model, State state, const Room& taken) const {
  const bool any_helps = taken.models >= config_.max_loaded;  // otherwise only memory of the model's own device helps
  std::optional<ModelIndex> least_recent;
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    if (models_[i].state != state) continue;
    if (!any_helps && config_.models[i].device != config_.models[model].device) continue;
    if (!least_recent || models_[i].last_used < models_[*least_recent].last_used) least_recent = i;
  }
  return least_recent;
}

/// Makes room only for the first model in the queue: otherwise smaller models could pass a large one for ever.
void ModelPoolCore::make_room(TimeUs now, Effects& effects) {
  while (!wanted_.empty()) {
    const ModelIndex first = wanted_.front();
    if (at(first).state == State::unloading) return;  // it has to be gone before it is loaded again
    if (fits(first, taken(/*staying=*/false))) {
      wanted_.pop_front();
      at(first).state = State::loading;
      effects.loads.push_back(first);
      continue;
    }
    const Room staying = taken(/*staying=*/true);
    if (fits(first, staying)) return;  // there is room as soon as the released models are gone
    const bool is_patient = now < at(first).wanted_since + config_.patience_us;
    auto goes = victim(first, State::idle, staying);
    const bool drain = !goes;
    if (drain && !is_patient) goes = victim(first, State::busy, staying);
    if (!goes) return;
    at(*goes).state = drain ? State::draining : State::asked;
    effects.releases.push_back({*goes, drain});
  }
}

}  // namespace pagoda::model_pool
