#include "actors/router_answers.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/gather.hpp"
#include "engine/view/combine.hpp"

namespace pagoda::actors {
namespace {

/// Returns the schedulers of the replicas that are not down.
std::vector<OfReplica<SchedulerActor>> present_schedulers(const RequestRouterState& state) {
  std::vector<OfReplica<SchedulerActor>> all;
  for (std::size_t i = 0; i < state.replicas.size(); ++i) {
    const auto id = static_cast<ReplicaId>(i);
    if (state.core->core().placement().state_of(id) == placement::ReplicaState::down) continue;
    all.push_back({id, state.replicas[i].scheduler});
  }
  return all;
}

/// Asks the scheduler of each replica. `on_each`: as in gather.
template <class Answer, class Message, class Then, class Failed, class OnEach = Nothing>
void ask_replicas(RequestRouterSelf self, const Message& message, Then then, Failed failed, OnEach on_each = {}) {
  gather<Answer>(self, present_schedulers(state_of(self)), message, std::move(then), std::move(failed), on_each);
}

/// Returns a function that passes a report on to the reports of its replica.
auto take_report(RequestRouterSelf self) {
  return [self](ReplicaId replica, auto report) { state_of(self).reports->reported(replica, std::move(report)); };
}

std::vector<LiveRequest> live_requests(RequestRouterSelf self, std::vector<OfReplica<Progress>>& all) {
  std::vector<GroupProgress> groups;
  for (auto& [replica, progress] : all) std::ranges::move(progress.groups, std::back_inserter(groups));
  std::ranges::sort(groups, {}, &GroupProgress::id);
  return state_of(self).core->core().live_requests(groups, now_us());
}

}  // namespace

caf::typed_response_promise<EngineStats> answer_stats(RequestRouterSelf self, const GetStats& message) {
  Promise<EngineStats> promise(self);
  if (state_of(self).core->core().has_failed()) {
    deliver(promise, state_of(self).core->core().with_own(EngineStats{}, now_us()));
    return promise.handle();
  }
  const auto answer = [self, promise](const std::vector<OfReplica<EngineStats>>&) mutable {
    const auto& state = state_of(self);
    deliver(promise, state.core->core().with_own(state.reports->stats(), now_us()));
  };
  const auto no_answer = [self, promise](caf::error& reason) mutable {
    const auto& core = state_of(self).core->core();
    if (core.has_failed()) return deliver(promise, core.with_own(EngineStats{}, now_us()));
    deliver(promise, std::move(reason));
  };
  ask_replicas<EngineStats>(self, message, answer, no_answer, take_report(self));
  return promise.handle();
}

caf::typed_response_promise<RequestList> answer_list(RequestRouterSelf self) {
  Promise<RequestList> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto answer = [self, promise](std::vector<OfReplica<Progress>>& all) mutable {
    deliver(promise, RequestList{live_requests(self, all)});
  };
  ask_replicas<Progress>(self, GetProgress{}, answer, no_answer);
  return promise.handle();
}

caf::typed_response_promise<PrefixCacheReset> reset_prefix_cache(RequestRouterSelf self) {
  Promise<PrefixCacheReset> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto answer = [promise](const std::vector<OfReplica<PrefixCacheReset>>&) mutable {
    deliver(promise, PrefixCacheReset{});
  };
  ask_replicas<PrefixCacheReset>(self, ResetPrefixCache{}, answer, no_answer);
  return promise.handle();
}

namespace {

template <class Answer, class Message>
void pass_on(RequestRouterSelf self, const Message& message, Promise<Answer> promise) {
  pagoda::actors::request(
      self, state_of(self).adapters, message,
      [promise](Answer& answer) mutable { deliver(promise, std::move(answer)); },
      [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
}

/// `code`: code of the error of an engine without adapters.
template <class Message>
caf::typed_response_promise<AdapterReply> pass_change_on(RequestRouterSelf self, const Message& message,
                                                         ErrorCode code) {
  Promise<AdapterReply> promise(self);
  const auto& state = state_of(self);
  if (state.adapters && !state.core->core().has_failed()) {
    pass_on(self, message, promise);
  } else {
    const Error none{code, "the engine was started without enable_lora or enable_prompt_adapter", "lora_name"};
    deliver(promise, AdapterReply{fail(state.adapters ? state.core->core().no_answer() : none)});
  }
  return promise.handle();
}

/// Asks the adapter store, if there is one, then the schedulers for the requests that run.
template <class Then, class Failed>
void ask_adapter_metrics(RequestRouterSelf self, Then then, Failed failed) {
  if (!state_of(self).adapters) return then(std::nullopt);
  auto on_store = [self, then, failed](metrics::AdapterMetrics& metrics) {
    auto on_progress = [self, then, metrics](std::vector<OfReplica<Progress>>& all) mutable {
      for (const LiveRequest& request : live_requests(self, all)) {
        if (request.adapter.empty()) continue;
        const bool runs = request.state == RequestState::running;
        (runs ? metrics.running : metrics.waiting).push_back(request.adapter);
      }
      for (auto* names : {&metrics.running, &metrics.waiting}) {
        std::ranges::sort(*names);
        names->erase(std::ranges::unique(*names).begin(), names->end());
      }
      then(std::move(metrics));
    };
    ask_replicas<Progress>(self, GetProgress{}, std::move(on_progress), failed);
  };
  pagoda::actors::request(self, state_of(self).adapters, GetMetrics{}, std::move(on_store), failed);
}

}  // namespace

caf::typed_response_promise<AdapterReply> change_adapters(RequestRouterSelf self, const AddAdapter& message) {
  return pass_change_on(self, message, ErrorCode::invalid_request);
}

caf::typed_response_promise<AdapterReply> change_adapters(RequestRouterSelf self, const RemoveAdapter& message) {
  return pass_change_on(self, message, ErrorCode::unknown_adapter);
}

caf::typed_response_promise<AdapterList> answer_adapters(RequestRouterSelf self, const ListAdapters& message) {
  Promise<AdapterList> promise(self);
  const auto& state = state_of(self);
  if (state.adapters && !state.core->core().has_failed()) {
    pass_on(self, message, promise);
  } else {
    deliver(promise, AdapterList{});
  }
  return promise.handle();
}

/// Asks the schedulers, then the output processor: a client that asks after the end of a request finds it in both.
caf::typed_response_promise<metrics::EngineMetrics> answer_metrics(RequestRouterSelf self, const GetMetrics& message) {
  Promise<metrics::EngineMetrics> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto on_schedulers = [self, promise, no_answer](std::vector<OfReplica<metrics::SchedulerMetrics>>&) {
    const auto& reports = *state_of(self).reports;
    metrics::EngineMetrics all{.stats = reports.stats(), .steps = reports.steps()};
    auto answer = [self, promise, no_answer, all = std::move(all)](const metrics::RequestMetrics& requests) mutable {
      auto& state = state_of(self);
      all.requests = requests;
      all.refusals = state.refusals;
      all.grammars = state.grammars->metrics();
      all = state.core->core().metrics_with_own(std::move(all), now_us());
      auto on_adapters = [promise, all = std::move(all)](std::optional<metrics::AdapterMetrics> adapters) mutable {
        all.adapters = std::move(adapters);
        deliver(promise, std::move(all));
      };
      ask_adapter_metrics(self, std::move(on_adapters), no_answer);
    };
    pagoda::actors::request(self, state_of(self).outputs, GetMetrics{}, std::move(answer), no_answer);
  };
  ask_replicas<metrics::SchedulerMetrics>(self, message, on_schedulers, no_answer, take_report(self));
  return promise.handle();
}

/// Asks the replicas, then the output processor; adds the spans.
caf::typed_response_promise<view::EngineView> answer_view(RequestRouterSelf self, const GetView& message) {
  Promise<view::EngineView> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto on_replicas = [self, promise, no_answer, message](std::vector<OfReplica<view::ReplicaView>>& replies) {
    view::EngineView all;
    all.replica = message.replica;
    std::vector<std::pair<ReplicaId, view::Queues>> queues;
    for (auto& [replica, reply] : replies) {
      queues.emplace_back(replica, std::move(reply.queues));
      if (replica == message.replica) all.blocks = std::move(reply.blocks);
    }
    all.queues = view::combine(std::move(queues));
    GetRequestFacts question;
    for (const auto& request : all.queues.requests) question.requests.push_back(request.id);
    auto answer = [self, promise, message, all = std::move(all)](view::RequestFacts& facts) mutable {
      const auto& state = state_of(self);
      all.now_us = now_us();
      all.num_replicas = static_cast<std::int32_t>(state.replicas.size());
      all.stats = state.core->core().with_own(state.reports->stats(), all.now_us);
      view::add_facts(all.queues, facts.open);
      std::ranges::move(state.core->core().waiting_for_grammar(), std::back_inserter(all.queues.requests));
      all.ended = std::move(facts.ended);
      if (state.trace) {
        auto recent = state.trace->recent().since(message.spans_after, view::kMaxSpans, all.now_us);
        all.spans = std::move(recent.spans);
        all.last_span = recent.last_number;
      }
      deliver(promise, std::move(all));
    };
    pagoda::actors::request(self, state_of(self).outputs, std::move(question), std::move(answer), no_answer);
  };
  ask_replicas<view::ReplicaView>(self, message, on_replicas, no_answer,
                                  [self](ReplicaId replica, const view::ReplicaView& view) {
                                    state_of(self).reports->reported(replica, view.stats);
                                  });
  return promise.handle();
}

}  // namespace pagoda::actors
