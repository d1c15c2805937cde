#pragma once

/// Several models in one process. Each model has an address that always exists, its host. To clients the host is what
/// the request router of the model's engine would be. The engine behind it is loaded when it is needed, and unloaded.
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
#include "engine/model_pool/arrival_queue.hpp"
#include "engine/model_pool/model_pool_core.hpp"
#include "engine/model_pool/residency.hpp"

namespace pagoda::actors {

/// A running engine. It ends when this object is destroyed.
class LoadedEngine {
 public:
  /// The actors that hold the memory of a replica's devices. Devices that fail are replaced, so `present` is called
  /// only after `supervisor`, the actor that replaces them, has ended.
  struct Devices {
    caf::actor supervisor;
    std::function<std::vector<caf::actor>()> present;
  };
  LoadedEngine(RequestRouterActor router, caf::actor supervisor, std::vector<Devices> replicas)
      : router_(std::move(router)), supervisor_(std::move(supervisor)), replicas_(std::move(replicas)) {}
  /// Returns at once. The engine ends as described at spawn_supervisor.
  ~LoadedEngine();
  LoadedEngine(const LoadedEngine&) = delete;
  LoadedEngine& operator=(const LoadedEngine&) = delete;

  const RequestRouterActor& router() const { return router_; }
  /// Calls `on_end` once, on any thread, when the engine has ended for any reason and its memory is free.
  void when_gone(std::function<void()> on_end) const;

 private:
  RequestRouterActor router_;
  caf::actor supervisor_;
  std::vector<Devices> replicas_;
};
using SharedEngine = std::shared_ptr<const LoadedEngine>;

/// A model that the pool may load.
struct PoolModel {
  std::string name;
  /// Loads the engine. Blocks; called on a thread of its own. May throw.
  std::function<Result<SharedEngine>()> load;
  ModelInfo info;
  model_pool::ArrivalQueue::Limits line;
  /// Timeout of requests without one of their own, including the wait for the model. 0: no limit.
  std::int64_t default_timeout_ms = 0;
  model_pool::SharedResidency residency = std::make_shared<model_pool::Residency>();
  bool preload = false;  ///< whether the model is loaded at start
};

/// (private) host -> pool: messages wait for the model, or none wait any more; the model has work, or has none.
struct ModelUse {
  enum class Kind : std::uint8_t { wanted, unwanted, busy, idle };
  model_pool::ModelIndex model = 0;
  Kind kind = Kind::wanted;
};
/// To the host of a model: sets how long the model stays loaded without work, until it is unloaded. Sent after a
/// request, the value applies to the load on which the request runs, even if this load has not begun. (private) host ->
/// pool: applies to the current load.
struct SetKeepAlive {
  model_pool::ModelIndex model = 0;
  TimeUs keep_alive_us = 0;
};
/// (private) to the pool, from the thread that loads: a load has ended.
struct ModelLoadEnded {
  model_pool::ModelIndex model = 0;
  Result<SharedEngine> engine;
  TimeUs took_us = 0;
};
/// (private) to the pool: the memory of an engine is free.
struct EngineGone {
  model_pool::ModelIndex model = 0;
  std::uint64_t load = 0;  ///< number of the model's load
};
/// (private) pool, to itself: the time of an idle or a waiting model may be over.
struct PoolTimerDue {};

/// (private) pool -> host: waiting and later messages go to this router.
struct ServeModel {
  RequestRouterActor router;
};
/// (private) pool -> host: waiting messages get the error. The next message causes a new load.
struct RefuseModel {
  Error error;
};
/// (private) pool -> host: the engine has failed, and has reported the failure to its requests.
struct ForgetEngine {};
/// (private) pool -> host: asks whether the engine has no work and can be ended. After the answer yes, later messages
/// wait for another engine. `drain`: no new message is passed on, and the answer is yes when the current work has
/// ended.
struct ReleaseModel {
  bool drain = false;
};
struct ModelReleased {
  bool gives_up = false;
};
/// (private) host, to itself: the deadline of a waiting message may have passed.
struct WaitOver {};

namespace detail {
template <class, class>
struct Joined;
template <class... Left, class... Right>
struct Joined<caf::typed_actor<Left...>, caf::typed_actor<Right...>> {
  using type = caf::typed_actor<Left..., Right...>;
};
}  // namespace detail

/// Acts as a request router to clients.
using ModelHostActor =
    detail::Joined<RequestRouterActor, Interface<caf::result<void>(ServeModel), caf::result<void>(RefuseModel),
                                                 caf::result<void>(ForgetEngine),
                                                 caf::result<ModelReleased>(ReleaseModel), caf::result<void>(WaitOver),
                                                 // Sets how long the model stays loaded without work.
                                                 caf::result<void>(SetKeepAlive)>>::type;

struct ConnectHosts;
/// Decides which models are loaded, and has them loaded and unloaded. When it gets an exit message, it ends all of
/// them.
using ModelPoolActor = Interface<
    // (private) host: messages wait for its model, or none any more; the model has work, or none.
    caf::result<void>(ModelUse),
    // (private) host: sets how long a model stays loaded without work.
    caf::result<void>(SetKeepAlive),
    // (private) a load has ended.
    caf::result<void>(ModelLoadEnded),
    // (private) an engine has ended.
    caf::result<void>(EngineGone),
    // (private) itself: the time of an idle model or of a waiting model may be over.
    caf::result<void>(PoolTimerDue),
    // (private) the hosts. Sent once, before any other message.
    caf::result<void>(ConnectHosts),
    // (private) a host has ended: the pool ends too.
    caf::result<void>(ChildGone)>;

struct ConnectHosts {
  std::vector<ModelHostActor> hosts;
};

ModelHostActor spawn_model_host(caf::actor_system& system, model_pool::ModelIndex index, PoolModel model,
                                ModelPoolActor pool);

struct SpawnedPool {
  ModelPoolActor pool;
  std::vector<ModelHostActor> models;  ///< in the order of the `models` argument
};
/// Spawns the pool and the hosts. `config` must describe the same models.
SpawnedPool spawn_model_pool(caf::actor_system& system, model_pool::ModelPoolConfig config,
                             std::vector<PoolModel> models);

}  // namespace pagoda::actors

CAF_BEGIN_TYPE_ID_BLOCK(pagoda_pool, caf::id_block::pagoda::end)
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ModelUse))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::SetKeepAlive))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::ModelLoadEnded))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::EngineGone))
CAF_ADD_TYPE_ID(pagoda_pool, (pagoda::actors::PoolTimerDue))
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
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::PoolTimerDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ServeModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::RefuseModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ForgetEngine)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ReleaseModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ModelReleased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::WaitOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ConnectHosts)
