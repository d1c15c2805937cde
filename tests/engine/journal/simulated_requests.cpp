#include "tests/engine/journal/simulated_requests.hpp"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "io/model_files/model_files.hpp"

namespace pagoda::test {
namespace {

constexpr std::uint64_t kNumClients = 4;

routing::AdmissionLimits limits() {
  routing::AdmissionLimits limits;
  limits.vocab_size = 1000;
  limits.eos_token_ids = {2};
  limits.max_model_len = 100;
  limits.max_kv_tokens = 80;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 12;
  limits.max_queued_prompt_tokens = 300;
  limits.max_queued_prompt_bytes = 400'000;
  limits.max_bytes_per_token = 2000;
  limits.defaults.temperature = 0.5;
  limits.seed = 9;
  limits.has_adapters = true;
  return limits;
}

}  // namespace

std::shared_ptr<const text::Tokenizer> demo_tokenizer() {
  static const auto loaded = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

SimulatedRequests::SimulatedRequests(std::uint64_t seed, const journal::SharedJournal& journal)
    : random_(seed), journal_(journal), router_(limits(), 500, journal), output_(demo_tokenizer(), journal) {}

TokenIds SimulatedRequests::some_tokens(std::size_t count) {
  TokenIds tokens;
  for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(below(1000)));
  return tokens;
}

routing::WorkDone SimulatedRequests::some_work() {
  const auto prompt_tokens = static_cast<std::int64_t>(below(50));
  return {prompt_tokens, static_cast<std::int64_t>(below(50))};
}

GenerateRequest SimulatedRequests::some_request() {
  GenerateRequest request;
  if (one_in(3)) {
    request.prompt_token_ids.emplace();
    for (const TokenId token : some_tokens(1 + below(40))) request.prompt_token_ids->push_back(token);
  } else {
    request.prompt = std::string(below(one_in(4) ? 100'000 : 100), 'a');
    if (one_in(3)) request.prompt_literals.push_back({0, request.prompt->size() / 2});
  }
  SamplingParams& sampling = request.sampling;
  sampling.max_tokens = 1 + static_cast<std::int64_t>(below(30));
  sampling.n = one_in(3) ? 1 + static_cast<std::int64_t>(below(4)) : 1;
  if (one_in(3)) sampling.best_of = sampling.n + static_cast<std::int64_t>(below(3));
  if (one_in(6)) {
    sampling.use_beam_search = true;
    sampling.temperature = 0;
  } else if (one_in(2)) {
    sampling.stop = {"e", "the ", " w"};
    if (one_in(2)) sampling.stop = {"once upon", "er"};
    sampling.include_stop_str_in_output = one_in(2);
    sampling.min_tokens = static_cast<std::int64_t>(below(4));
  }
  if (one_in(3)) sampling.logprobs = 1;
  if (one_in(4)) sampling.prompt_logprobs = 1;
  sampling.skip_special_tokens = !one_in(4);
  sampling.speculation = !one_in(4);
  request.open.temperature = one_in(2);
  request.stream = !one_in(3);
  if (one_in(3)) request.timeout_ms = 1 + static_cast<std::int64_t>(below(3));
  if (one_in(4)) request.adapter = std::string(1, static_cast<char>('a' + below(3)));
  request.user = one_in(2) ? "tenant" : "";
  // Steps here report more of beams and prompts than those of an engine.
  if (!sampling.use_beam_search && !sampling.prompt_logprobs && one_in(2)) {
    request.resumable = true;
    request.resume = std::make_shared<const ResumeNote>(ResumeNote{"note", 60'000});
  }
  return request;
}

void SimulatedRequests::submit() {
  const routing::ClientId client = 1 + below(kNumClients);
  const GenerateRequest request = some_request();
  const auto submitted = router_.submit(client, below(20), request, now_);
  if (submitted && submitted->needs_adapter) at_adapter_store_.emplace_back(submitted->id, request.adapter);
  if (!submitted) {
    ++num_refused_;
  } else if (submitted->job) {
    texts_.emplace(*submitted->job, submitted->id);
  } else {
    apply(router_.prompt_encoded(submitted->id,
                                 TokenIds(request.prompt_token_ids->begin(), request.prompt_token_ids->end())));
  }
}

bool SimulatedRequests::recover(const std::vector<output::OutputCore::Resumable>& requests) {
  routing::ClientId client = 1000;  // each request has a session of its own
  for (const auto& [spec, progress, until] : requests) {
    GenerateRequest request;
    request.prompt_token_ids.emplace(spec->prompt->begin(), spec->prompt->end());
    request.sampling = spec->sampling;
    request.stream = spec->stream;
    request.resumable = true;
    request.resume = spec->resume;
    request.progress = progress;
    request.adapter = spec->adapter.name;
    const auto submitted = router_.submit(client++, 1, request, now_);
    if (!submitted || submitted->job) return false;
    const bool needs_adapter = !request.adapter.empty() && !progress->has_ended();
    if (submitted->needs_adapter != needs_adapter) return false;
    if (needs_adapter) {
      ++held_adapters_[7];
      apply(router_.adapter_acquired(submitted->id, AdapterRef{7, request.adapter, "/again"}));
    }
    const auto effects = router_.prompt_encoded(submitted->id, *spec->prompt);
    apply(effects);
    if (!inside_.contains(submitted->id)) return false;
    for (const auto& sequence : progress->sequences) {
      std::int64_t& num_steps = num_steps_[submitted->id];
      num_steps = std::max<std::int64_t>(num_steps, std::ssize(sequence.result.token_ids));
    }
    if (!progress->has_ended()) continue;
    StepOutputs end;
    end.ends.push_back({submitted->id, progress->error});
    for (const RequestOutput& output : output_.process(end, now_).outputs) {
      inside_.erase(output.request_id);
      apply(router_.closed(output.request_id, some_work(), now_));
    }
    if (inside_.contains(submitted->id)) return false;
  }
  return true;
}

void SimulatedRequests::run_tokenizer() {
  while (const auto job = router_.next_job()) at_tokenizer_.push_back(*job);
  if (at_tokenizer_.empty()) return;
  const routing::JobId job = at_tokenizer_.front();
  at_tokenizer_.erase(at_tokenizer_.begin());
  router_.job_finished(job);
  const auto text = texts_.find(job);
  if (text == texts_.end()) return;
  Result<TokenIds> prompt = some_tokens(below(60));
  if (one_in(10)) prompt = fail(ErrorCode::invalid_request, "the text is no UTF-8");
  const RequestId request = text->second;
  texts_.erase(text);
  apply(router_.prompt_encoded(request, std::move(prompt)));
}

void SimulatedRequests::run_adapter_store() {
  if (at_adapter_store_.empty()) return;
  const auto at = at_adapter_store_.begin() + static_cast<std::ptrdiff_t>(below(at_adapter_store_.size()));
  const auto [request, name] = *at;
  at_adapter_store_.erase(at);
  Result<AdapterRef> answer = AdapterRef{1 + below(6), name, "/adapters/" + name};
  if (one_in(8)) answer = fail(ErrorCode::bad_file, "the file is broken");
  if (answer) {
    answer->facts.num_virtual_tokens = answer->id > 4 ? 3 : 0;  // some are prompt adapters
    ++num_acquired_;
    ++held_adapters_[answer->id];
  }
  apply(router_.adapter_acquired(request, std::move(answer)));
}

void SimulatedRequests::apply(const Effects& effects) {
  for (const RequestId id : effects.adapters_withdrawn) {
    if (one_in(2)) std::erase_if(at_adapter_store_, [&](const auto& question) { return question.first == id; });
  }
  for (const AdapterId id : effects.adapters_released) {
    const auto held = held_adapters_.find(id);
    ASSERT_NE(held, held_adapters_.end()) << "an adapter is released that no request holds";
    if (--held->second == 0) held_adapters_.erase(held);
  }
  for (const auto& settled : effects.settled) {
    const auto* spec = std::get_if<SharedSpec>(&settled.outcome);
    if (spec == nullptr) continue;
    output_.open(*spec);
    inside_.emplace(settled.id, *spec);
  }
  for (const routing::JobId job : effects.taken_back) texts_.erase(job);
  if (effects.aborted.empty() && effects.expired.empty()) return;
  StepOutputs ends;
  for (const auto& expired : effects.expired) ends.ends.push_back({expired.id, expired.error});
  num_expired_ += std::ssize(effects.expired);
  for (const RequestId request : effects.aborted) {
    ends.ends.push_back({request, one_in(4) ? std::optional(Error{ErrorCode::internal, "failed"}) : std::nullopt});
  }
  for (const RequestOutput& output : output_.process(ends, now_).outputs) {
    inside_.erase(output.request_id);
    apply(router_.closed(output.request_id, some_work(), now_));
  }
}

void SimulatedRequests::run_step() {
  StepOutputs outputs;
  outputs.step = ++step_;
  outputs.finished_us = now_;
  for (const auto& [id, spec] : inside_) {
    if (one_in(3)) continue;
    const std::int64_t step = ++num_steps_[id];
    const SamplingParams& sampling = spec->sampling;
    if (step == 1) outputs.started.push_back({id, now_ - 5, 4});
    if (one_in(9)) {
      outputs.interrupted.push_back({id, one_in(3) ? Interruption::restarted : Interruption::preempted});
    }
    if (one_in(4)) {
      const auto num_drafts = static_cast<std::int32_t>(1 + below(5));
      outputs.drafts.push_back(
          {id, num_drafts, static_cast<std::int32_t>(below(static_cast<std::uint64_t>(num_drafts) + 1))});
    }
    const auto report = [&] {
      const auto token = static_cast<TokenId>(below(1000));
      return TokenReport{token, -static_cast<float>(below(100)) / 10, 2, {{token, -0.5F}, {token + 1, -1.5F}}};
    };
    const bool has_prompt_logprobs = sampling.prompt_logprobs && spec->own_prompt().size() > 2;
    if (step == 1 && has_prompt_logprobs) outputs.prompt_logprobs.push_back({id, {report(), report()}});
    const std::int64_t num_sequences = sampling.use_beam_search ? sampling.n : sampling.num_sequences();
    for (std::int32_t i = 0; i < num_sequences; ++i) {
      SequenceOutput output{id, i, report(), std::nullopt, std::nullopt};
      if (step >= sampling.max_tokens) {
        output.finished = FinishReason::length;
      } else if (one_in(15)) {
        output.finished = FinishReason::stop;
        if (one_in(2)) output.stop_token = output.token->token;
        if (one_in(4)) output.token.reset();
      }
      outputs.outputs.push_back(std::move(output));
    }
  }
  const auto effects = output_.process(outputs, now_ + 3);
  num_stop_hits_ += std::ssize(effects.stop_hits);
  for (const RequestOutput& output : effects.outputs) {
    if (!output.done && !output.error) continue;
    ++num_ended_;
    inside_.erase(output.request_id);
    apply(router_.closed(output.request_id, some_work(), now_));
  }
}

void SimulatedRequests::run(int num_events) {
  for (; num_events > 0; --num_events) {
    now_ += static_cast<TimeUs>(below(50));
    journal_->begin_segment_if_full();
    switch (below(14)) {
      case 0:
      case 1:
      case 2:
        submit();
        break;
      case 3:
      case 4:
        run_tokenizer();
        break;
      case 5:
        if (const auto id = router_.core().live_request(1 + below(kNumClients), below(20))) {
          apply(router_.abort(*id, now_));
        }
        break;
      case 6:
        router_.ask(1 + below(kNumClients), below(90'000));
        break;
      case 7:
        if (one_in(10)) apply(router_.client_gone(1 + below(kNumClients), now_));
        break;
      case 8:
        apply(router_.expire(now_));
        break;
      case 9:
        run_adapter_store();
        break;
      default:
        run_step();
    }
  }
  left_ = output_.core().resumable();
  apply(router_.drain());
  submit();
  if (one_in(2)) apply(router_.engine_failed({ErrorCode::device_failed, "the device is gone"}));
  apply(router_.abort_all(now_, one_in(2)));
  while (!at_adapter_store_.empty()) run_adapter_store();
}

}  // namespace pagoda::test
