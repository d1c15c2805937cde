#include "io/journal/record_layout.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/output/output_core.hpp"
#include "engine/routing/router_core.hpp"
#include "engine/scheduling/draft_model_proposer.hpp"
#include "engine/scheduling/lookup_proposer.hpp"
#include "engine/scheduling/output_history.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/text/tokenizer.hpp"
#include "io/serving/recovered_request.hpp"

namespace pagoda::io {
namespace {

/// Returns outputs with one value of every kind of field that an output core receives.
StepOutputs step_with_everything() {
  StepOutputs outputs;
  outputs.started.emplace_back();
  outputs.interrupted.emplace_back();
  outputs.drafts.emplace_back();
  outputs.outputs.emplace_back();
  outputs.ends.emplace_back();
  return outputs;
}

std::shared_ptr<RequestSpec> small_spec() {
  auto spec = std::make_shared<RequestSpec>();
  spec->prompt = std::make_shared<const TokenIds>(1, 0);
  return spec;
}

}  // namespace

/// Digests values of every kind of field that records have.
std::uint64_t layout_of_records() {
  StepResult result;
  result.rows.emplace_back();
  result.samples.emplace_back();
  MemoryGrant answer;
  answer.waiting.emplace_back();
  answer.table_deltas.emplace_back();
  ExecuteStep step;
  step.new_rows.emplace_back();
  step.table_deltas.emplace_back();
  step.work.emplace_back();
  MemoryRequest plan;
  plan.forks.emplace_back();
  plan.sampled.emplace_back();
  plan.progress.emplace_back();
  plan.running.emplace_back();
  plan.swapped.emplace_back();
  plan.waiting.emplace_back();
  plan.needs.emplace_back();
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  out.put(RequestSpec{});
  out.put(ResumeNote{});
  RequestProgress progress;
  progress.sequences.emplace_back();
  const TokenLogprob candidate;
  const LogprobEntry entry{.top = std::span(&candidate, 1)};
  progress.prompt_logprobs.add(entry);
  out.put(progress);
  out.put(result);
  out.put(step_with_everything());
  out.put(answer);
  out.put(CachePlan{});
  out.put(step);
  out.put(plan);
  out.put(scheduling::SchedulerConfig{});
  out.put(memory::BlockSpaceConfig{});
  scheduling::SchedulerConfig drafting;
  drafting.speculation.method = SpeculationMethod::suffix;
  scheduling::OutputHistory history(drafting.speculation);
  history.add(*small_spec(), TokenIds{1});
  history.save(out);
  scheduling::LookupProposer proposer(drafting.speculation, *small_spec(), {}, history);
  proposer.on_fork(1, 2);
  proposer.save(out);
  scheduling::DraftModelProposer of_draft_model(drafting.speculation);
  of_draft_model.on_result(1, 1, 1);
  of_draft_model.save(out);
  scheduling::SchedulerCore scheduler(drafting);
  scheduler.add_group(small_spec());
  scheduler.save(out);
  routing::AdmissionLimits limits;
  limits.vocab_size = limits.max_model_len = limits.max_kv_tokens = 2;
  limits.max_num_seqs = 1;
  limits.max_queued_requests = limits.max_queued_prompt_tokens = 2;
  out.put(limits);
  GenerateRequest request;
  request.prompt = "";
  routing::RouterCore router(limits, 0);
  out.put(request);
  out.put(router.submit(1, 1, request, 0));
  router.save(out);
  RequestResult end;
  end.prompt_logprobs.emplace();
  end.outputs.emplace_back().logprobs.emplace().add(entry);
  RequestOutput output{1, 1, {}, std::move(end), Error{}};
  output.deltas.emplace_back();
  out.put(output);
  return journal::digest(bytes);
}

std::uint64_t layout_of_resumable_requests() {
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  out.put(journal::Source::output);
  out.put(serving::RequestOrigin{});
  StepOutputs step = step_with_everything();
  step.outputs.front().token.emplace().top.emplace_back();
  step.prompt_logprobs.emplace_back().tokens.emplace_back().top.emplace_back();
  out.put(step);
  // The state of a core with one live request and one that has ended.
  text::TokenizerSpec letter;
  letter.model.vocab.emplace_back("a", 0);
  letter.decoders.emplace();
  output::OutputCore core(text::Tokenizer::create(letter).value());
  StepOutputs end;
  for (const RequestId id : {RequestId{1}, RequestId{2}}) {
    auto spec = small_spec();
    spec->id = id;
    spec->sampling.logprobs = 1;
    spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note", 1000});
    core.open(std::move(spec));
  }
  end.outputs.emplace_back().request = 2;
  end.outputs.back().token.emplace().top.emplace_back();
  end.outputs.back().finished = FinishReason::length;
  core.process(end, 0);
  core.save(out);
  return journal::digest(bytes);
}

}  // namespace pagoda::io
