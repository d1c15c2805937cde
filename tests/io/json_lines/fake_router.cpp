#include "tests/io/json_lines/fake_router.hpp"

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace pagoda::json_lines {
namespace {

using namespace actors;

constexpr std::size_t kFloodBytes = 64 << 10;
constexpr auto kEndlessPace = std::chrono::milliseconds(1);
constexpr auto kBusyTime = std::chrono::milliseconds(300);
constexpr auto kBeforeLastWords = std::chrono::milliseconds(50);  // the sessions have nothing left to do by then
constexpr int kPoolThreads = 2;                                   // of the fixtures

struct FakeRouterState {
  FakeRouterState() {}

  struct Live {
    SinkActor sink;
    std::uint64_t tag = 0;
    std::shared_ptr<const GenerateRequest> request;
    std::int64_t next = 0;
    std::string text;
    TokenIds ids;
  };

  std::shared_ptr<FakeRouterCounts> counts;
  std::map<RequestId, Live> live;
  std::set<caf::actor_id> sinks;
  std::map<std::string, std::string> adapters{{"poet", "/adapters/poet"}, {"sql", "/adapters/sql"}};  ///< path by name
  RequestId last_id = 0;
  bool draining = false;
};

using Self = RequestRouterActor::stateful_pointer<FakeRouterState>;

RequestResult result_of(const FakeRouterState::Live& live, FinishReason reason) {
  RequestResult result;
  result.outputs.push_back({0, live.text, live.ids, {}, reason, {}, std::nullopt, std::nullopt});
  result.usage = {1, static_cast<std::int64_t>(live.ids.size()), 0};
  return result;
}

void give(Self self, const FakeRouterState::Live& live, RequestOutput output) {
  output.tag = live.tag;
  OutputBatch batch;
  batch.outputs.push_back(std::move(output));
  send(self, live.sink, std::move(batch));
}

void end(Self self, RequestId id, RequestOutput output) {
  auto& state = state_of(self);
  give(self, state.live.at(id), std::move(output));
  state.live.erase(id);
  --state.counts->live;
}

void end_with(Self self, RequestId id, FinishReason reason) {
  RequestOutput output;
  output.done = result_of(state_of(self).live.at(id), reason);
  end(self, id, std::move(output));
}

/// Holds up the pool of the actors, so that what is sent behind this arrives later than the router's end is known.
void keep_pool_busy(Self self) {
  for (int thread = 0; thread < kPoolThreads; ++thread) {
    // With an argument: without any, CAF 0.17 binds a reference to null.
    self->home_system().spawn([](caf::event_based_actor*, int) { std::this_thread::sleep_for(kBusyTime); }, 0);
  }
}

void say_last_words(Self self) {
  keep_pool_busy(self);
  while (!state_of(self).live.empty()) end_with(self, state_of(self).live.begin()->first, FinishReason::length);
  self->quit(caf::exit_reason::user_shutdown);
}

/// Two deltas, the first of them long, and an error, all at once.
void fail_behind_deltas(Self self, RequestId id) {
  auto& state = state_of(self);
  const auto& live = state.live.at(id);
  OutputBatch batch;
  for (const auto& text : {std::string(kFloodBytes, 'x'), std::string("the rest")}) {
    batch.outputs.emplace_back().tag = live.tag;
    batch.outputs.back().deltas.push_back({0, text, {0}, {}});
  }
  batch.outputs.emplace_back().tag = live.tag;
  batch.outputs.back().error = Error{ErrorCode::internal, "made to fail"};
  send(self, live.sink, std::move(batch));
  state.live.erase(id);
  --state.counts->live;
}

/// One token for the request, or its end. Every request waits for its turn in the mailbox, so many advance together.
void advance(Self self, RequestId id) {
  auto& state = state_of(self);
  const auto found = state.live.find(id);
  if (found == state.live.end()) return;
  auto& live = found->second;
  const auto& prompt = live.request->prompt.value_or("");
  if (prompt == "fail") {
    RequestOutput output;
    output.error = Error{ErrorCode::internal, "made to fail"};
    return end(self, id, std::move(output));
  }
  if (prompt == "fail late") return fail_behind_deltas(self, id);
  if (prompt == "silent") return;
  if (prompt == "last words") return say_last_words(self);
  const bool ends = prompt != "flood" && prompt != "endless" && prompt != "hold";
  if (ends && live.next == live.request->sampling.max_tokens) {
    return end_with(self, id, FinishReason::length);
  }
  RequestOutput output;
  const std::string word = live.request->adapter.empty() ? "w" : live.request->adapter;
  const auto text = prompt == "flood" ? std::string(kFloodBytes, 'x') : word + std::to_string(live.next) + " ";
  output.deltas.push_back({0, text, {static_cast<TokenId>(live.next)}, {}});
  if (prompt != "flood") live.text += text;
  live.ids.push_back(static_cast<TokenId>(live.next++));
  if (live.request->stream) give(self, live, std::move(output));
  const auto me = caf::actor_cast<RequestRouterActor>(self);
  if (prompt == "flood" || prompt == "endless") {
    send_later(self, me, kEndlessPace, RequestClosed{id});  // what has no end must leave the pool to others
  } else if (prompt != "hold") {
    send(self, me, RequestClosed{id});
  }
}

SubmitReply submit(Self self, const SubmitRequest& message) {
  auto& state = state_of(self);
  ++state.counts->submitted;
  if (state.draining) return {fail(ErrorCode::shutting_down, "the engine is shutting down")};
  if (message.request->prompt == "refuse") return {fail(ErrorCode::invalid_request, "refused", "prompt")};
  if (const auto& adapter = message.request->adapter; !adapter.empty() && !state.adapters.contains(adapter)) {
    return {fail(ErrorCode::unknown_adapter, "no adapter " + adapter, "adapter")};
  }
  const auto id = ++state.last_id;
  state.live.emplace(id, FakeRouterState::Live{message.sink, message.tag, message.request, 0, {}, {}});
  ++state.counts->live;
  if (state.sinks.insert(message.sink.id()).second) {
    const auto me = caf::actor_cast<caf::actor_addr>(self);
    when_ended(message.sink, [me, sink = message.sink.address()] {
      if (const auto router = caf::actor_cast<RequestRouterActor>(me)) send_anonymously(router, SinkGone{sink});
    });
  }
  const auto me = caf::actor_cast<RequestRouterActor>(self);
  if (message.request->prompt == "last words") {
    send_later(self, me, kBeforeLastWords, RequestClosed{id});
  } else {
    send(self, me, RequestClosed{id});
  }
  return {id};
}

RequestRouterActor::behavior_type fake_router(Self self, const std::shared_ptr<FakeRouterCounts>& counts) {
  state_of(self).counts = counts;
  return {
      [self](const SubmitRequest& message) { return submit(self, message); },
      [self](const CancelRequest& message) -> CancelReply {
        auto& state = state_of(self);
        for (const auto& [id, live] : state.live) {
          if (live.sink == message.sink && live.tag == message.tag) {
            ++state.counts->cancelled;
            end_with(self, id, FinishReason::abort);
            return {true};
          }
        }
        return {false};
      },
      [self](const ListRequests&) {
        RequestList list;
        for (const auto& [id, live] : state_of(self).live) {
          list.requests.push_back({.id = id,
                                   .request_id = live.request->request_id,
                                   .user = live.request->user,
                                   .adapter = live.request->adapter,
                                   .state = RequestState::running,
                                   .prompt_tokens = 1,
                                   .generated_tokens = live.next});
        }
        return list;
      },
      [self](const AbortRequest& message) -> CancelReply {
        if (!state_of(self).live.contains(message.request)) return {false};
        end_with(self, message.request, FinishReason::abort);
        return {true};
      },
      [self](const ResetPrefixCache&) {
        ++state_of(self).counts->resets;
        return PrefixCacheReset{};
      },
      [self](const AddAdapter& message) -> AdapterReply {
        if (message.path.find("damaged") != std::string::npos) {
          return {fail(ErrorCode::bad_adapter, message.path + ": damaged", "lora_path")};
        }
        const bool is_new = state_of(self).adapters.emplace(message.name, message.path).second;
        if (!is_new) return {fail(ErrorCode::invalid_request, "the name is taken", "lora_name")};
        return {};
      },
      [self](const RemoveAdapter& message) -> AdapterReply {
        if (state_of(self).adapters.erase(message.name) > 0) return {};
        return {fail(ErrorCode::unknown_adapter, "no adapter " + message.name, "lora_name")};
      },
      [self](const ListAdapters&) {
        AdapterList list;
        for (const auto& [name, path] : state_of(self).adapters) list.adapters.push_back({name, path});
        return list;
      },
      [self](const GetStats&) {
        EngineStats stats;
        stats.overloaded = state_of(self).counts->overloaded;
        stats.requests_running = static_cast<std::int64_t>(state_of(self).live.size());
        return stats;
      },
      [self](const GetMetrics&) {
        metrics::EngineMetrics metrics;
        metrics.stats.requests_running = static_cast<std::int64_t>(state_of(self).live.size());
        return metrics;
      },
      [self](const GetView&) {
        view::EngineView view;
        ++state_of(self).counts->views;
        view.stats.requests_running = static_cast<std::int64_t>(state_of(self).live.size());
        return view;
      },
      [](const GetModelInfo&) {
        ModelInfo info;
        info.name = "fake";
        return info;
      },
      [](const TokenizeRequest& message) -> TokenizeReply {
        if (message.text.empty()) return {fail(ErrorCode::invalid_request, "nothing to tokenize", "text")};
        return {TokenIds(message.text.begin(), message.text.end())};
      },
      [](const DetokenizeRequest& message) -> DetokenizeReply {
        return {std::string(message.token_ids.begin(), message.token_ids.end())};
      },
      [self](const Drain&) -> Drained {
        auto& state = state_of(self);
        state.draining = true;
        const auto aborted = static_cast<std::int64_t>(state.live.size());
        while (!state.live.empty()) end_with(self, state.live.begin()->first, FinishReason::abort);
        return {aborted};
      },
      [](const AwaitIdle&) { return Idle{}; },
      [self](const SinkGone& message) {
        auto& state = state_of(self);
        ++state.counts->lost_sinks;
        state.sinks.erase(message.sink.id());
        std::erase_if(state.live, [&](const auto& entry) { return entry.second.sink.address() == message.sink; });
        state.counts->live = static_cast<int>(state.live.size());
      },
      [](const DrainTimeout&) {},
      [](const DeadlineDue&) {},
      [self](const RequestClosed& message) { advance(self, message.request); },
      [](const ChildGone&) {},
      [](const DrainReplica&) { return ReplicaDrained{}; },
      [](const StartReplica&) { return ReplicaStarted{}; },
      [](const MigrateRequest&) { return RequestMigrated{}; },
      [](const ConnectRoot&) {},
      [](const ReplicaDown&) {},
      [](const EngineFailed&) {},
  };
}

}  // namespace

RequestRouterActor spawn_fake_router(caf::actor_system& system, std::shared_ptr<FakeRouterCounts> counts) {
  return system.spawn(fake_router, std::move(counts));
}

}  // namespace pagoda::json_lines
