#include <algorithm>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"
#include "engine/journal/recorded_output.hpp"

namespace pagoda::actors {
namespace {

/// Drives OutputCore: one OutputBatch per sink and step.
struct OutputProcessorState {
  struct Destination {
    SinkActor sink;
    std::uint64_t tag = 0;
    SchedulerActor scheduler;
  };

  OutputProcessorState() {}
  ~OutputProcessorState() {
    // The engine ends under live requests: each still gets its terminal output.
    try {
      end_all(Error{ErrorCode::internal, "the engine has stopped"});
    } catch (const std::bad_alloc&) {  // then servers notice the end of the engine by themselves
      spdlog::error("not enough memory to report the engine's end to the clients");
    }
  }

  void end_all(const Error& error) {
    for (const auto& [id, to] : sinks) {
      if (router) retry_on_bad_alloc([&] { send_anonymously(router, RequestClosed{id}); });
      retry_on_bad_alloc([&] {
        send_anonymously(to.sink, OutputBatch{{RequestOutput{id, to.tag, {}, std::nullopt, error}}});
      });
    }
    sinks.clear();
  }

  std::unique_ptr<journal::RecordedOutput> core;
  std::unordered_map<RequestId, Destination> sinks;
  std::unordered_set<caf::actor_id> down;  ///< schedulers whose requests were handed over
  RequestRouterActor router;
  trace::SharedTracer trace;
};

using Self = OutputProcessorActor::stateful_pointer<OutputProcessorState>;

routing::WorkDone work_done(const RequestResult& result) {
  const auto us = [](double ms) { return static_cast<TimeUs>(ms * 1e3); };
  return {result.usage.prompt_tokens, result.usage.completion_tokens, us(result.timing.queue_ms),
          us(result.timing.ttft_ms)};
}

void process(Self self, const StepOutputs& step) {
  auto& state = state_of(self);
  const TraceSpan span(state.trace, trace::Row::output_processor, "outputs");
  output::OutputCore::Effects effects = state.core->process(step, now_us());
  span.end({arg("step", step.step), arg("tokens", step.outputs.size()), arg("requests", effects.outputs.size()),
            arg("stop_hits", effects.stop_hits.size())});
  for (const StopHit& hit : effects.stop_hits) {
    if (const auto found = state.sinks.find(hit.request); found != state.sinks.end()) {
      send(self, found->second.scheduler, hit);
    }
  }

  struct Batch {
    SinkActor sink;
    OutputBatch outputs = {};
    std::vector<RequestId> ended = {};
  };
  std::vector<Batch> batches;
  std::unordered_map<caf::actor_id, std::size_t> batch_of;
  std::vector<RequestClosed> closed;
  for (RequestOutput& output : effects.outputs) {
    const auto sink = state.sinks.find(output.request_id);
    PAGODA_ASSERT(sink != state.sinks.end(), "a request has its sink until its terminal output");
    const SinkActor& actor = sink->second.sink;
    const auto [place, fresh] = batch_of.emplace(actor.id(), batches.size());
    if (fresh) batches.push_back({actor});
    Batch& batch = batches[place->second];
    if (output.done || output.error) {
      const bool adapter_failed = output.error && output.error->code == ErrorCode::bad_adapter;
      if (adapter_failed) spdlog::warn("request {}: {}", output.request_id, output.error->message);
      closed.push_back(
          {output.request_id, output.done ? work_done(*output.done) : routing::WorkDone{}, adapter_failed});
      batch.ended.push_back(output.request_id);
    }
    batch.outputs.outputs.push_back(std::move(output));
  }
  for (const RequestClosed& request : closed) send(self, state.router, request);
  for (Batch& batch : batches) {
    send(self, batch.sink, std::move(batch.outputs));
    // Erased only now: if memory runs out earlier, the destructor of this actor sends the end to the sinks that have
    // not got it.
    for (const RequestId id : batch.ended) state.sinks.erase(id);
  }
}

/// Returns the unfinished requests of a scheduler that is down, or the one that it has given up, with their progress.
/// Each counts one restart more.
HandedOver hand_over(Self self, const HandOver& message) {
  auto& state = state_of(self);
  if (!message.request) state.down.insert(message.scheduler.id());
  std::vector<RequestId> ids;
  for (const auto& [id, to] : state.sinks) {
    if (to.scheduler == message.scheduler && id == message.request.value_or(id)) ids.push_back(id);
  }
  std::ranges::sort(ids);
  StepOutputs restarts;
  for (const RequestId id : ids) restarts.interrupted.push_back({id, Interruption::restarted});
  if (!ids.empty()) state.core->process(restarts, now_us());
  return {state.core->core().with_progress_of(ids)};
}

/// Returns whether the message comes from a scheduler whose requests were handed over: these tokens are computed again.
bool is_from_down_scheduler(Self self) {
  const auto& sender = self->current_sender();
  return sender && state_of(self).down.contains(sender->id());
}

OutputProcessorActor::behavior_type behavior(Self self, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                             const Instruments& instruments) {
  state_of(self).trace = instruments.trace;
  state_of(self).core = std::make_unique<journal::RecordedOutput>(tokenizer, instruments.journal);
  return {
      [self](const OpenOutput& message) {
        auto& state = state_of(self);
        state.sinks.emplace(message.spec->id,
                            OutputProcessorState::Destination{message.sink, message.spec->tag, message.scheduler});
        const bool is_open = state.core->open(message.spec);
        PAGODA_ASSERT(is_open, "the progress of a recovered request is checked when it is read");
      },
      [self](const MoveOutput& message) {
        auto& sinks = state_of(self).sinks;
        if (const auto found = sinks.find(message.request); found != sinks.end())
          found->second.scheduler = message.scheduler;
      },
      [self](const HandOver& message) { return reply(hand_over(self, message)); },
      [self](const StepOutputs& step) {
        if (!is_from_down_scheduler(self)) process(self, step);
      },
      [self](const ConnectOutputs& connect) { state_of(self).router = connect.router; },
      [self](const FlushOutputs&) {
        state_of(self);
        return reply(OutputsFlushed{});
      },
      [self](const StopRecording&) { state_of(self).core->stop_recording(); },
      [self](const GetMetrics&) { return reply(state_of(self).core->core().metrics()); },
      [self](const GetRequestFacts& message) { return reply(state_of(self).core->core().facts(message.requests)); },
      [self](const EngineFailed& failed) {
        state_of(self).end_all(failed.error);
        self->quit(caf::exit_reason::user_shutdown);
      },
  };
}

}  // namespace

OutputProcessorActor spawn_output_processor(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                            Instruments instruments) {
  return system.spawn(behavior, std::move(tokenizer), std::move(instruments));
}

}  // namespace pagoda::actors
