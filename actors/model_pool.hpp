#pragma once

/// Several models in one process: each has an address that is always there, its host, which is to clients what the
/// request router of its engine would be; the engine behind it is loaded when something needs it, and unloaded.
///
///   client --> host of the model --> request router of its engine, while there is one
///                  |   ^
///       ModelUse   v   |  ServeModel, RefuseModel, ReleaseModel, ForgetEngine
///                 pool (engine/model_pool/model_pool_core) --> a thread that loads

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/interfaces.hpp"
#include "engine/model_pool/model_pool_core.hpp"
#include "engine/model_pool/residency.hpp"
#include "engine/model_pool/waiting_line.hpp"

namespace pagoda::actors {

/// An engine that runs. It ends with this.
class LoadedEngine {
 public:
  /// The actors that hold the memory of the engine's devices. A device that fails is replaced, so they are asked for
  /// when the actor that replaces them has ended.
  struct Devices {
    caf::actor supervisor;
    std::function<std::vector<caf::actor>()> present;
  };
  LoadedEngine(RequestRouterActor router, caf::actor supervisor, Devices devices)
      : router_(std::move(router)), supervisor_(std::move(supervisor)), devices_(std::move(devices)) {}
  /// Returns at once; it ends as spawn_supervisor says.
  ~LoadedEngine();
  LoadedEngine(const LoadedEngine&) = delete;
  LoadedEngine& operator=(const LoadedEngine&) = delete;

  const RequestRouterActor& router() const { return router_; }
  /// Calls `on_end` once, on any thread, when the engine has ended, whyever, and its memory is free.
  void when_gone(std::function<void()> on_end) const;

 private:
  RequestRouterActor router_;
  caf::actor supervisor_;
  Devices devices_;
};
using SharedEngine = std::shared_ptr<const LoadedEngine>;

/// A model that the pool may load.
struct PoolModel {
  std::string name;
  /// Blocks while it loads; called on a thread of its own. It may throw.
  std::function<Result<SharedEngine>()> load;
  ModelInfo info;
  model_pool::WaitingLine::Limits line;
  std::int64_t default_timeout_ms = 0;  ///< of requests that bring none, the wait for the model included; 0: for ever
  model_pool::SharedResidency residency = std::make_shared<model_pool::Residency>();
  bool preload = false;  ///< at start, whether somebody wants it or not
};

/// (private) host -> pool.
struct ModelUse {
  enum class Kind : std::uint8_t { wanted, unwanted, busy, idle };
  model_pool::ModelIndex model = 0;
  Kind kind = Kind::wanted;
};
/// To a model's host: from now on, until the model is unloaded. Sent behind a request, it counts for the load that the
/// request runs on, whether that is there already or comes. (private) host -> pool: of the load that there is.
struct SetKeepAlive {
  model_pool::ModelIndex model = 0;
  TimeUs keep_alive_us = 0;
};
/// (private) to the pool, from the thread that loads.
struct ModelLoadEnded {
  model_pool::ModelIndex model = 0;
  Result<SharedEngine> engine;
  TimeUs took_us = 0;
};
/// (private) to the pool: the memory of an engine is free.
struct EngineGone {
  model_pool::ModelIndex model = 0;
  std::uint64_t load = 0;  ///< which of the model's loads it was
};
/// (private) to the pool: time has passed.
struct PoolLook {};

/// (private) pool -> host: what waits goes to this router, and what comes.
struct ServeModel {
  RequestRouterActor router;
};
/// (private) pool -> host: what waits gets the error. The next that comes tries again.
struct RefuseModel {
  Error error;
};
/// (private) pool -> host: the engine has failed, and has told its requests.
struct ForgetEngine {};
/// (private) pool -> host: is it without work, so that its engine can be ended? What comes behind a yes waits for
/// another one. `hold`: nothing new begins, and the answer is yes when what there is has ended.
struct ReleaseModel {
  bool hold = false;
};
struct ModelReleased {
  bool gives_up = false;
};
/// (private) host, to itself: something has waited for too long.
struct WaitOver {};

namespace detail {
template <class, class>
struct Joined;
template <class... Left, class... Right>
struct Joined<caf::typed_actor<Left...>, caf::typed_actor<Right...>> {
  using type = caf::typed_actor<Left..., Right...>;
};
}  // namespace detail

/// A request router to clients.
using ModelHostActor =
    detail::Joined<RequestRouterActor, Interface<caf::result<void>(ServeModel), caf::result<void>(RefuseModel),
                                                 caf::result<void>(ForgetEngine),
                                                 caf::result<ModelReleased>(ReleaseModel), caf::result<void>(WaitOver),
                                                 // How long it stays loaded without work.
                                                 caf::result<void>(SetKeepAlive)>>::type;

struct ConnectHosts;
/// Decides which models are loaded, and has it done. Told to exit, it ends all of them.
using ModelPoolActor = Interface<
    // (private) a host's model is waited for, or not any more; has work, or none.
    caf::result<void>(ModelUse),
    // (private) how long a model stays without work.
    caf::result<void>(SetKeepAlive),
    // (private) a load has ended.
    caf::result<void>(ModelLoadEnded),
    // (private) an engine has ended.
    caf::result<void>(EngineGone),
    // (private) an idle model's time, or somebody's patience, may be over.
    caf::result<void>(PoolLook),
    // (private) once, before anything else.
    caf::result<void>(ConnectHosts),
    // (private) a host has ended: so does the pool.
    caf::result<void>(ChildGone)>;

struct ConnectHosts {
  std::vector<ModelHostActor> hosts;
};

ModelHostActor spawn_model_host(caf::actor_system& system, model_pool::ModelIndex index, PoolModel model,
                                ModelPoolActor pool);

struct SpawnedPool {
  ModelPoolActor pool;
  std::vector<ModelHostActor> models;  ///< in the order of `models`
};
/// `config`: of the same models.
SpawnedPool spawn_model_pool(caf::actor_system& system, model_pool::ModelPoolConfig config,
                             std::vector<PoolModel> models);

}  // namespace pagoda::actors

CAF_BEGIN_TYPE_ID_BLOCK(pagoda_pool, caf::id_block::pagoda::end)
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ModelUse))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::SetKeepAlive))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ModelLoadEnded))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::EngineGone))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::PoolLook))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ServeModel))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::RefuseModel))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ForgetEngine))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ReleaseModel))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ModelReleased))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::WaitOver))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ConnectHosts))
CAF_END_TYPE_ID_BLOCK(pagoda_pool)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ModelUse)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::SetKeepAlive)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ModelLoadEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::EngineGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::PoolLook)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ServeModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::RefuseModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ForgetEngine)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ReleaseModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ModelReleased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::WaitOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ConnectHosts)
