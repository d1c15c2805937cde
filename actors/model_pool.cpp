#include "actors/model_pool.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "actors/watch.hpp"

namespace pagoda::actors {

LoadedEngine::~LoadedEngine() {
  // End the supervisor first: it treats the end of the router as a failure.
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
}

void LoadedEngine::when_gone(std::function<void()> on_end) const {
  const auto left = std::make_shared<std::atomic<std::size_t>>(1 + replicas_.size());
  const auto one_less = [left, on_end = std::move(on_end)] {
    if (left->fetch_sub(1) == 1) on_end();
  };
  when_ended(supervisor_, one_less);
  for (const Devices& replica : replicas_) {
    when_ended(replica.supervisor, [left, one_less, present = replica.present] {
      const auto devices = present();
      left->fetch_add(devices.size());
      for (const auto& device : devices) when_ended(device, one_less);
      one_less();
    });
  }
}

namespace {

using model_pool::ModelIndex;
using model_pool::ModelPoolCore;
using model_pool::ModelState;

struct ModelPoolState {
  ModelPoolState() {}

  std::optional<ModelPoolCore> core;
  std::vector<PoolModel> models;
  std::shared_ptr<std::vector<ModelHostActor>> hosts = std::make_shared<std::vector<ModelHostActor>>();
  std::vector<SharedEngine> engines;  ///< engines by model; null: the model is not loaded
  std::vector<std::uint64_t> loads;   ///< number of loads that have begun, by model
  std::optional<TimeUs> next_timer;   ///< time of the earliest PoolTimerDue that is on its way
};

using Self = ModelPoolActor::stateful_pointer<ModelPoolState>;

/// Returns the error that clients get when a load has failed. The reason is only in the log, because it names files of
/// this machine.
tl::unexpected<Error> load_failed(const std::string& model, std::string_view why) {
  spdlog::error("the model {} cannot be loaded: {}", model, why);
  return fail(ErrorCode::internal, "the model " + model + " cannot be loaded; the server's log says why", "model");
}

/// Loads the model. Turns exceptions into errors.
Result<SharedEngine> loaded(const PoolModel& model) {
  try {
    auto engine = model.load();
    if (engine) return engine;
    return load_failed(model.name, engine.error().message);
  } catch (const std::bad_alloc&) {
    return load_failed(model.name, "there is not enough memory");
  } catch (const std::exception& error) {
    return load_failed(model.name, error.what());
  }
}

/// Loads the model and reports to the pool. Runs on a thread of its own, so it may take long.
void load_and_report(caf::event_based_actor*, const PoolModel& model, ModelIndex index, const caf::actor_addr& whom) {
  const TimeUs begun = now_us();
  auto engine = loaded(model);
  // If the pool has ended, the engine ends here.
  if (const auto pool = caf::actor_cast<ModelPoolActor>(whom)) {
    send_anonymously(pool, ModelLoadEnded{index, std::move(engine), now_us() - begun});
  }
}

void begin_load(Self self, ModelIndex index) {
  auto& state = state_of(self);
  auto& model = state.models[index];
  ++state.loads[index];
  model.residency->state = ModelState::loading;
  spdlog::info("loading the model {}", model.name);
  const auto me = caf::actor_cast<ModelPoolActor>(self);
  try {
    self->system().template spawn<caf::detached>(load_and_report, model, index, caf::actor_cast<caf::actor_addr>(me));
  } catch (const std::exception& error) {  // no thread could be started
    send_anonymously(me, ModelLoadEnded{index, load_failed(model.name, error.what())});
  }
}

void apply(Self self, const ModelPoolCore::Effects& effects);

/// Unloads a model. Call when no request of the model is live and its host passes none on.
void unload(Self self, ModelIndex index) {
  auto& state = state_of(self);
  if (!state.engines[index]) return;  // it has failed meanwhile
  state.models[index].residency->state = ModelState::unloading;
  spdlog::info("unloading the model {}", state.models[index].name);
  // The drain ends when the last outputs have been sent.
  const auto end = [self, index, load = state.loads[index]] {
    auto& now = state_of(self);
    if (now.loads[index] == load) now.engines[index].reset();
  };
  pagoda::actors::request(
      self, state.engines[index]->router(), Drain{0}, [end](const Drained&) { end(); }, [end](caf::error&) { end(); });
}

void release(Self self, const ModelPoolCore::Release& what) {
  const auto answered = [self, index = what.model](bool gives_up) {
    auto effects = state_of(self).core->released(index, gives_up, now_us());
    if (gives_up) unload(self, index);
    apply(self, effects);
  };
  pagoda::actors::request(
      self, (*state_of(self).hosts)[what.model], ReleaseModel{what.drain},
      [answered](const ModelReleased& reply) { answered(reply.gives_up); },
      [answered](caf::error&) { answered(false); });
}

/// Writes the states of the models to where other threads read them.
void send_residency(ModelPoolState& state) {
  const auto now = now_us();
  const auto unix_s =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  constexpr TimeUs kUsPerS = 1'000'000;
  for (ModelIndex i = 0; i < state.models.size(); ++i) {
    auto& residency = *state.models[i].residency;
    const auto expiry = state.core->expiry(i);
    residency.keep_alive_us = state.core->keep_alive_us(i);
    residency.expires_unix_s = expiry ? unix_s + (*expiry - now) / kUsPerS : 0;
    const auto is = residency.state.load();
    if (state.core->is_wanted(i)) {
      residency.state = ModelState::waiting;
    } else if (is == ModelState::waiting) {
      residency.state = ModelState::unloaded;
    }
  }
}

void apply(Self self, const ModelPoolCore::Effects& effects) {
  auto& state = state_of(self);
  for (const auto index : effects.loads) begin_load(self, index);
  for (const auto& what : effects.releases) release(self, what);
  send_residency(state);
  const auto next = state.core->next_timer();
  if (!next || (state.next_timer && *state.next_timer <= *next)) return;
  state.next_timer = next;
  constexpr TimeUs kUsPerMs = 1000;
  const auto wait = std::chrono::milliseconds(std::max<TimeUs>(0, *next - now_us() + kUsPerMs - 1) / kUsPerMs);
  send_later(self, caf::actor_cast<ModelPoolActor>(self), wait, PoolTimerDue{});
}

void on_use(Self self, const ModelUse& use) {
  auto& core = *state_of(self).core;
  const auto now = now_us();
  switch (use.kind) {
    case ModelUse::Kind::wanted:
      return apply(self, core.wanted(use.model, now));
    case ModelUse::Kind::unwanted:
      return apply(self, core.unwanted(use.model, now));
    case ModelUse::Kind::busy:
      return apply(self, core.busy(use.model, now));
    case ModelUse::Kind::idle:
      return apply(self, core.idle(use.model, now));
  }
}

void on_load_ended(Self self, const ModelLoadEnded& ended) {
  auto& state = state_of(self);
  const auto index = ended.model;
  auto& model = state.models[index];
  if (!ended.engine) {
    ++model.residency->load_failures;
    model.residency->state = ModelState::unloaded;
    send(self, (*state.hosts)[index], RefuseModel{ended.engine.error()});
    return apply(self, state.core->load_ended(index, false, now_us()));
  }
  constexpr double kUsPerMs = 1000;
  spdlog::info("the model {} is loaded, in {:.0f} ms", model.name, static_cast<double>(ended.took_us) / kUsPerMs);
  ++model.residency->loads;
  model.residency->last_load_us = ended.took_us;
  model.residency->state = ModelState::loaded;
  state.engines[index] = *ended.engine;
  const auto me = caf::actor_cast<caf::actor_addr>(caf::actor_cast<ModelPoolActor>(self));
  (*ended.engine)->when_gone([me, index, load = state.loads[index]] {
    if (const auto pool = caf::actor_cast<ModelPoolActor>(me)) send_anonymously(pool, EngineGone{index, load});
  });
  send(self, (*state.hosts)[index], ServeModel{(*ended.engine)->router()});
  apply(self, state.core->load_ended(index, true, now_us()));
}

void on_engine_gone(Self self, const EngineGone& gone) {
  auto& state = state_of(self);
  if (gone.load != state.loads[gone.model]) return;
  auto& model = state.models[gone.model];
  if (state.engines[gone.model]) {
    spdlog::error("the engine of the model {} has stopped; the next request loads the model again", model.name);
    state.engines[gone.model].reset();
    send(self, (*state.hosts)[gone.model], ForgetEngine{});
  }
  ++model.residency->unloads;
  model.residency->state = ModelState::unloaded;
  apply(self, state.core->gone(gone.model, now_us()));
}

void connect(Self self, const ConnectHosts& connected) {
  auto& state = state_of(self);
  *state.hosts = connected.hosts;
  const auto me = caf::actor_cast<ModelPoolActor>(self);
  for (const auto& host : connected.hosts) watch(me, host);
  for (ModelIndex i = 0; i < state.models.size(); ++i) {
    if (state.models[i].preload) apply(self, state.core->wanted(i, now_us()));
  }
}

ModelPoolActor::behavior_type behavior(Self self, const model_pool::ModelPoolConfig& config,
                                       const std::vector<PoolModel>& models) {
  auto& initial = state_of(self);
  initial.core.emplace(config);
  initial.models = models;
  initial.engines.resize(models.size());
  initial.loads.resize(models.size());
  self->attach_functor([hosts = initial.hosts] {
    for (const auto& host : *hosts) end_now(host);
  });
  return {
      [self](const ModelUse& use) { on_use(self, use); },
      [self](const SetKeepAlive& message) {
        apply(self, state_of(self).core->keep_alive(message.model, message.keep_alive_us, now_us()));
      },
      [self](const ModelLoadEnded& ended) { on_load_ended(self, ended); },
      [self](const EngineGone& gone) { on_engine_gone(self, gone); },
      [self](const PoolTimerDue&) {
        state_of(self).next_timer.reset();
        apply(self, state_of(self).core->on_timer(now_us()));
      },
      [self](const ConnectHosts& connected) { connect(self, connected); },
      [self](const ChildGone&) {
        spdlog::critical("the router of a model has ended; the service stops");
        self->quit(caf::exit_reason::user_shutdown);
      },
  };
}

}  // namespace

SpawnedPool spawn_model_pool(caf::actor_system& system, model_pool::ModelPoolConfig config,
                             std::vector<PoolModel> models) {
  SpawnedPool spawned{system.spawn(behavior, std::move(config), models), {}};
  for (ModelIndex i = 0; i < models.size(); ++i) {
    spawned.models.push_back(spawn_model_host(system, i, std::move(models[i]), spawned.pool));
  }
  send_anonymously(spawned.pool, ConnectHosts{spawned.models});
  return spawned;
}

}  // namespace pagoda::actors
