// Replays the router and the output core, which see requests and outputs as clients do.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/journal/output_records.hpp"
#include "engine/journal/recorded_router.hpp"
#include "engine/journal/replay.hpp"

namespace pagoda::journal {
namespace {

constexpr std::int64_t kMaxSequences = 1 << 20;
constexpr std::int64_t kMaxReplicas = CoreId::kMaxReplicas;
constexpr std::int64_t kMaxRequests = 1 << 24;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 32U;

bool is_up_to(std::int64_t max, std::int64_t value) {
  return value >= 1 && value <= max;
}

/// Returns whether the tokens of all requests together, with those that they may generate, can be counted.
bool is_valid(const routing::AdmissionLimits& limits) {
  constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int64_t>::max() / 4;
  return is_up_to(std::numeric_limits<std::int32_t>::max(), limits.vocab_size) &&
         is_up_to(std::numeric_limits<std::int32_t>::max(), limits.max_model_len) &&
         is_up_to(kMaxSequences, limits.max_num_seqs) && is_up_to(kMaxRequests, limits.max_queued_requests) &&
         is_up_to(kMaxReplicas, limits.num_replicas) &&
         is_up_to(SamplingLimits{}.max_sequences, limits.sampling.max_sequences) &&
         (limits.max_model_len + 1) * limits.max_num_seqs <= kMaxTokens / limits.max_queued_requests &&
         limits.stream_interval >= 1 && limits.default_timeout_ms >= 0 && limits.default_timeout_ms <= kMaxTimeoutMs &&
         (!limits.max_bytes_per_token || *limits.max_bytes_per_token > 0);
}

std::string of_request(const char* what, RequestId id) {
  return what + (" of request " + std::to_string(id));
}

}  // namespace

bool Replay::load_router(bool went_on, Decoder& in) {
  if (!in.get(router_limits_) || !in.get(router_started_us_) || !is_valid(router_limits_)) return false;
  if (went_on) compare_state(Source::router, *router_, in);
  router_ = std::make_unique<routing::RouterCore>(router_limits_, router_started_us_);
  return router_->load(in) && in.num_left() == 0;
}

bool Replay::load_output(bool went_on, Decoder& in) {
  if (went_on) compare_state(Source::output, *output_, in);
  output_ = std::make_unique<output::OutputCore>(tokenizer_);
  return output_->load(in) && in.num_left() == 0;
}

void Replay::effects(const routing::RouterCore::Effects& effects, std::string name) {
  if (!effects.empty()) effect(Source::router, effects, std::move(name));
}

bool Replay::apply_router_input(std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(RouterInput{}))) return false;
  RequestId id = 0;
  routing::ClientId client = 0;
  TimeUs now = 0;
  switch (static_cast<RouterInput>(input)) {
    case RouterInput::submit: {
      std::uint64_t tag = 0;
      GenerateRequest request;
      bool has_grammar = false;
      TimeUs waited_us = 0;
      if (!read(in, client, tag, request, now, has_grammar, waited_us) || !is_valid_time(now)) return false;
      if (!is_valid_time(waited_us) || waited_us > now) return false;
      const auto grammar = has_grammar ? std::optional(grammar::SharedGrammar()) : std::nullopt;
      effect(Source::router, router_->submit(client, tag, request, now, grammar, waited_us),
             "answer to tag " + std::to_string(tag));
      return true;
    }
    case RouterInput::prompt_encoded: {
      Result<TokenIds> prompt;
      std::vector<TokenIds> bad_words;
      if (!read(in, id, prompt, bad_words)) return false;
      effects(router_->prompt_encoded(id, std::move(prompt), std::move(bad_words)), of_request("admission", id));
      return true;
    }
    case RouterInput::abort:
      if (!read(in, id, now) || !is_valid_time(now)) return false;
      effects(router_->abort(id, now), of_request("abort", id));
      return true;
    case RouterInput::closed: {
      routing::WorkDone work;
      if (!read(in, id, work, now) || !is_valid_time(now) || !work.is_valid()) return false;
      effects(router_->closed(id, work, now), of_request("end", id));
      return true;
    }
    case RouterInput::expire:
      if (!read(in, now) || !is_valid_time(now)) return false;
      effects(router_->expire(now), "end of requests whose time ran out");
      return true;
    case RouterInput::client_gone:
      if (!read(in, client, now) || !is_valid_time(now)) return false;
      effects(router_->client_gone(client, now), "end of client " + std::to_string(client));
      return true;
    case RouterInput::ask: {
      std::size_t num_bytes = 0;
      if (!read(in, client, num_bytes) || num_bytes > kMaxTextBytes) return false;
      effect(Source::router, router_->ask(client, num_bytes), "answer to client " + std::to_string(client));
      return true;
    }
    case RouterInput::next_job:
      if (!read(in)) return false;
      if (const auto job = router_->next_job()) effect(Source::router, *job, "turn of job " + std::to_string(*job));
      return true;
    case RouterInput::job_finished: {
      routing::JobId job = 0;
      if (!read(in, job)) return false;
      router_->job_finished(job);
      return true;
    }
    case RouterInput::drain:
      if (!read(in)) return false;
      effects(router_->drain(), "drain");
      return true;
    case RouterInput::abort_all: {
      bool leave_resumable = false;
      if (!read(in, now, leave_resumable) || !is_valid_time(now)) return false;
      effects(router_->abort_all(now, leave_resumable), "abort of all requests");
      return true;
    }
    case RouterInput::engine_failed: {
      Error error;
      if (!read(in, error)) return false;
      effects(router_->engine_failed(std::move(error)), "end of all requests outside the engine");
      return true;
    }
    case RouterInput::grammar_compiled: {
      routing::JobId job = 0;
      std::optional<Error> error;
      if (!read(in, job, error)) return false;
      Result<grammar::SharedGrammar> grammar(nullptr);
      if (error) grammar = fail(std::move(*error));
      effects(router_->grammar_compiled(job, grammar), "grammar " + std::to_string(job));
      return true;
    }
    case RouterInput::next_grammar:
      if (!read(in)) return false;
      if (const auto job = router_->next_grammar())
        effect(Source::router, *job, "turn of grammar " + std::to_string(*job));
      return true;
    case RouterInput::drain_replica: {
      ReplicaId replica = 0;
      if (!read(in, replica) || !router_->check_drain(replica)) return false;
      router_->drain_replica(replica);
      return true;
    }
    case RouterInput::resume_replica: {
      ReplicaId replica = 0;
      if (!read(in, replica) || !router_->placement().is_replica(replica)) return false;
      if (router_->placement().state_of(replica) != placement::ReplicaState::draining) return false;
      router_->resume_replica(replica);
      return true;
    }
    case RouterInput::replica_down: {
      ReplicaId replica = 0;
      if (!read(in, replica) || !router_->placement().is_replica(replica)) return false;
      router_->replica_down(replica);
      return true;
    }
    case RouterInput::start_replica: {
      ReplicaId replica = 0;
      if (!read(in, replica) || !router_->check_start(replica)) return false;
      if (router_->placement().num_placed_on(replica) > 0) return false;
      router_->start_replica(replica);
      return true;
    }
    case RouterInput::migrate: {
      SharedSpec request;
      ReplicaId from = 0;
      ReplicaId to = 0;
      if (!read(in, request, from, to) || !pagoda::is_valid(request)) return false;
      if (!router_->placement().is_replica(from) || !router_->placement().is_replica(to)) return false;
      effects(router_->migrate(std::move(request), from, to), "a request that moves");
      return true;
    }
    case RouterInput::hand_over: {
      ReplicaId from = 0;
      std::vector<SharedSpec> requests;
      std::vector<RequestId> running;
      if (!read(in, from, requests, running) || !router_->placement().is_replica(from)) return false;
      if (!std::ranges::all_of(requests, [](const SharedSpec& spec) { return pagoda::is_valid(spec); })) return false;
      effects(router_->hand_over(from, std::move(requests), running), "requests of a replica that is down");
      return true;
    }
    case RouterInput::adapter_acquired: {
      Result<AdapterRef> adapter;
      if (!read(in, id, adapter) || (adapter && adapter->id == 0)) return false;
      effects(router_->adapter_acquired(id, std::move(adapter)), of_request("adapter", id));
      return true;
    }
    case RouterInput::grammar_finished: {
      routing::JobId job = 0;
      if (!read(in, job)) return false;
      router_->grammar_finished(job);
      return true;
    }
  }
  return false;
}

bool Replay::apply_output_input(std::uint8_t input, Decoder& in) {
  auto record = read_output_record(input, in);
  if (!record) return false;
  if (auto* spec = std::get_if<SharedSpec>(&*record)) return output_->open(std::move(*spec));
  const auto& [step, now] = std::get<std::pair<StepOutputs, TimeUs>>(*record);
  if (!output_->takes(step)) return false;
  const auto effects = output_->process(step, now);
  if (!effects.empty()) effect(Source::output, effects, "outputs of step " + std::to_string(step.step));
  return true;
}

}  // namespace pagoda::journal
