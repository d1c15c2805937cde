#include "examples/summarizer/summarizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace summarizer {
namespace {

using pagoda::GenerateRequest;
using pagoda::OutputBatch;
using pagoda::Result;

/// One text that is being summarised.
struct Job {
  caf::typed_response_promise<Summary> promise;
  std::vector<std::string> parts;  ///< at first parts of the text, then their summaries
  std::size_t num_open = 0;        ///< number of parts without a summary
  bool is_last = false;            ///< whether the next summary is the answer
};

struct State {
  State() {}

  pagoda::EngineHandle engine;
  std::shared_ptr<const pagoda::chat::ChatPrompts> chat;
  Limits limits;
  std::map<std::uint64_t, Job> jobs;
  std::uint64_t last_job = 0;
};

using Self = SummarizerActor::stateful_pointer<State>;
using pagoda::actors::state_of;

/// The tag of a request names its job and part. Outputs repeat it.
constexpr std::uint64_t kMaxParts = 1 << 16;
std::uint64_t tag_of(std::uint64_t job, std::size_t part) {
  return job * kMaxParts + part;
}

/// Splits a text into parts. A part ends at a space if there is one, and never within a character.
std::vector<std::string> parts_of(const std::string& text, std::size_t part_bytes) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.size(), begin + part_bytes);
    if (end < text.size()) {
      const auto space = text.find_last_of(" \n", end);
      if (space != std::string::npos && space > begin) end = space + 1;
      constexpr int kContinuationMask = 0xC0;
      constexpr int kContinuation = 0x80;
      while (end > begin + 1 && (text[end] & kContinuationMask) == kContinuation) --end;
    }
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

Result<std::shared_ptr<const GenerateRequest>> request_for(const State& state, const std::string& part) {
  auto request = std::make_shared<GenerateRequest>();
  request->stream = false;
  request->sampling.max_tokens = state.limits.max_summary_tokens;
  request->sampling.temperature = 0;
  if (state.chat == nullptr) {
    request->prompt = part + "\n\nSummary:";
    return request;
  }
  pagoda::chat::ChatInput chat;
  chat.add_generation_prompt = true;
  chat.messages.push_back({{"role", "user"}, {"content", "Sum up this text in a few sentences:\n\n" + part}});
  request->add_special_tokens = false;  // the template writes them
  if (auto status = state.chat->apply(std::move(chat), *request); !status) return pagoda::fail(status.error());
  return request;
}

void fail_job(Self self, std::uint64_t id, pagoda::Error error) {
  auto found = state_of(self).jobs.extract(id);
  if (!found.empty()) pagoda::actors::deliver(found.mapped().promise, Summary{pagoda::fail(std::move(error))});
}

/// Submits all parts of a job. The engine batches them.
void sum_up_parts(Self self, std::uint64_t id) {
  auto& state = state_of(self);
  auto& job = state.jobs.at(id);
  job.num_open = job.parts.size();
  job.is_last = job.parts.size() == 1;
  for (std::size_t part = 0; part < job.parts.size(); ++part) {
    const auto request = request_for(state, job.parts[part]);
    if (!request) return fail_job(self, id, request.error());
    pagoda::actors::request(
        self, state.engine.router,
        pagoda::actors::SubmitRequest{*request, caf::actor_cast<pagoda::actors::SinkActor>(self), tag_of(id, part)},
        [self, id](const pagoda::actors::SubmitReply& reply) {
          if (!reply.ticket) fail_job(self, id, reply.ticket.error());
        },
        [self, id](caf::error&) {
          fail_job(self, id, {pagoda::ErrorCode::internal, "the engine has stopped"});
        });
  }
}

/// Stores the summary of a part. When all are there, they become the parts of the next round.
void on_part(Self self, std::uint64_t id, std::size_t part, const pagoda::RequestOutput& output) {
  auto& state = state_of(self);
  const auto found = state.jobs.find(id);
  if (found == state.jobs.end()) return;  // another part has failed
  if (output.error) return fail_job(self, id, *output.error);
  auto& job = found->second;
  job.parts[part] = output.done->outputs.front().text;
  if (--job.num_open > 0) return;
  if (job.is_last) {
    auto done = state.jobs.extract(found);
    pagoda::actors::deliver(done.mapped().promise, Summary{std::move(done.mapped().parts.front())});
    return;
  }
  std::string all;
  for (const auto& summary : job.parts) all += summary + "\n";
  auto next = parts_of(all, state.limits.part_bytes);
  // Summaries that are as long as their texts would cause endless rounds.
  if (next.size() >= job.parts.size()) next = {all.substr(0, state.limits.part_bytes)};
  job.parts = std::move(next);
  sum_up_parts(self, id);
}

SummarizerActor::behavior_type behavior(Self self, const pagoda::EngineHandle& engine,
                                        const std::shared_ptr<const pagoda::chat::ChatPrompts>& chat,
                                        const Limits& limits) {
  auto& initial = state_of(self);
  initial.engine = engine;
  initial.chat = chat;
  initial.limits = limits;
  // A token is seldom shorter than two bytes. The context also holds the words around the part, and the summary.
  constexpr std::int64_t kOtherTokens = 64;
  const auto room = engine.model.max_model_len - limits.max_summary_tokens - kOtherTokens;
  initial.limits.part_bytes =
      std::min(limits.part_bytes, static_cast<std::size_t>(std::max<std::int64_t>(64, 2 * room)));
  return {
      [self](const Summarize& message) {
        auto& state = state_of(self);
        auto promise = self->make_response_promise<Summary>();
        auto parts = parts_of(message.text, state.limits.part_bytes);
        if (parts.empty() || parts.size() > state.limits.max_parts) {
          pagoda::actors::deliver(promise,
                                  Summary{pagoda::fail(pagoda::ErrorCode::invalid_request,
                                                       parts.empty() ? "there is no text" : "the text is too long")});
          return promise;
        }
        const auto id = ++state.last_job;
        state.jobs.emplace(id, Job{promise, std::move(parts)});
        sum_up_parts(self, id);
        return promise;
      },
      [self](const OutputBatch& batch) {
        for (const auto& output : batch.outputs) {
          if (!output.done && !output.error) continue;
          on_part(self, output.tag / kMaxParts, output.tag % kMaxParts, output);
        }
      },
  };
}

}  // namespace

SummarizerActor spawn_summarizer(caf::actor_system& system, pagoda::EngineHandle engine,
                                 std::shared_ptr<const pagoda::chat::ChatPrompts> chat, Limits limits) {
  return system.spawn(behavior, std::move(engine), std::move(chat), limits);
}

}  // namespace summarizer
