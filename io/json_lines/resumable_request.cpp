#include "io/json_lines/resumable_request.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "io/json_lines/connection.hpp"
#include "io/serving/delta_order.hpp"
#include "io/serving/session.hpp"

namespace pagoda::json_lines {
namespace {

/// A resumable request. Its stream keeps it alive until the request ends or the stream is given up.
class ResumableRequest : public std::enable_shared_from_this<ResumableRequest> {
 public:
  struct Facts {
    bool timing = false;  ///< as GenerateOp::timing
    bool stream = true;   ///< whether the client wants deltas
    std::int64_t num_sequences = 1;
    std::int64_t prompt_tokens = 0;  ///< prompt tokens that the tenant was charged for
  };

  ResumableRequest(ConnectionContext& context, const serving::ServedModel& model,
                   std::shared_ptr<serving::ResumableStream> stream, const Facts& facts, serving::TenantTicket ticket,
                   serving::RequestRecord record)
      : context_(context),
        router_(model.router),
        stream_(std::move(stream)),
        facts_(facts),
        ticket_(std::move(ticket)),
        record_(std::move(record)),
        order_(facts.num_sequences),
        session_(context.io, context.system, [this](std::vector<serving::Event>& events) { on_events(events); }) {}
  ~ResumableRequest() { context_.resumable.erase(this); }

  void submit(std::shared_ptr<const GenerateRequest> request) {
    live_with_stream();
    session_.submit(router_, 0, std::move(request));
  }

  /// Continues a recovered request. Its earlier deltas are in the stream before a client can attach.
  void resume(serving::RecoveredRequest recovered, std::function<void()> on_settled) {
    on_settled_ = std::move(on_settled);
    is_reported_ = recovered.request->progress->has_ended();  // by the earlier process
    stream_->await_reader();
    live_with_stream();
    std::vector<SequenceDelta> deltas;
    for (auto& delta : recovered.delivered) {
      generated_tokens_ += std::ssize(delta.token_ids);
      order_.add(std::move(delta), deltas);
    }
    write(deltas);
    stream_->notify_reader();
    session_.submit(router_, 0, std::move(recovered.request));
  }

 private:
  void live_with_stream() {
    stream_->on_cancel([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->session_.cancel(self->router_, 0);
    });
    stream_->on_give_up([self = shared_from_this()] { self->finish(); });
    context_.resumable.emplace(this, [this] { session_.flush(); });
  }

  void on_events(std::vector<serving::Event>& events) {
    const auto self = shared_from_this();
    try {
      for (auto& event : events) {
        if (ended_) return;
        std::visit([this](auto& e) { on_event(e); }, event);
      }
      stream_->notify_reader();
    } catch (const std::exception& error) {
      spdlog::error("request {}: {}", stream_->name().quoted_id(), error.what());
      fail_with({ErrorCode::internal, "the server failed on this request"});
    }
  }

  void on_event(OutputBatch& batch) {
    for (auto& output : batch.outputs) {
      std::vector<SequenceDelta> deltas;
      for (auto& delta : output.deltas) {
        generated_tokens_ += std::ssize(delta.token_ids);
        ticket_.add_tokens(std::ssize(delta.token_ids));
        order_.add(std::move(delta), deltas);
      }
      if (output.error) return fail_with(*output.error);
      if (output.done) order_.finish(deltas);
      write(deltas);
      if (output.done) return on_done(*output.done);
    }
  }

  void on_event(serving::Accepted& accepted) {
    settle();
    record_.generation->prompt_tokens = accepted.prompt_tokens;
    if (accepted.prompt_tokens == 0) return;  // the request has ended already
    ticket_.add_tokens(accepted.prompt_tokens - std::exchange(facts_.prompt_tokens, accepted.prompt_tokens));
  }

  void on_event(serving::Refused& refused) {
    ticket_.refused();
    fail_with(refused.error);
  }
  void on_event(serving::QueryAnswered&) { PAGODA_ASSERT(false, "no query is sent here"); }
  void on_event(serving::FlushMark&) { fail_with({ErrorCode::internal, "the engine has stopped"}); }
  void on_event(serving::SessionFailed&) { fail_with(serving::session_failure()); }

  void on_done(const RequestResult& result) {
    const auto& usage = result.usage;
    ticket_.add_tokens(usage.prompt_tokens - facts_.prompt_tokens + usage.completion_tokens - generated_tokens_);
    record_.generation->prompt_tokens = usage.prompt_tokens;
    record_.generation->done(result, record_.generation->completion_tokens);
    std::string line;
    append_done(line, stream_->name().id, result, facts_.timing, nullptr, stream_->history().next());
    stream_->add(std::move(line));
    finish();
  }

  void write(const std::vector<SequenceDelta>& deltas) {
    if (!facts_.stream) return;
    for (const auto& delta : deltas) {
      std::string line;
      append_delta(line, stream_->name().id, delta, stream_->history().next());
      stream_->add(std::move(line));
      record_.generation->completion_tokens += std::ssize(delta.token_ids);
    }
  }

  void fail_with(const Error& error) {
    const auto reported = wire_error(error);
    record_.error = to_string(reported.code);
    std::string line;
    append_error(line, stream_->name().id, reported, stream_->history().next());
    stream_->add(std::move(line));
    finish();
  }

  /// Ends the request. Also called when its stream is given up.
  void finish() {
    const auto self = shared_from_this();
    ended_ = true;
    ticket_.end();
    auto& generation = *record_.generation;
    if (generation.finish_reason.empty()) generation.finish_reason = record_.error.empty() ? "abort" : "error";
    if (!is_reported_) context_.telemetry.ended(record_);
    session_.close();
    settle();
    stream_->end();
  }

  void settle() {
    if (const auto on_settled = std::exchange(on_settled_, nullptr)) on_settled();
  }

  ConnectionContext& context_;
  const actors::RequestRouterActor& router_;
  const std::shared_ptr<serving::ResumableStream> stream_;
  Facts facts_;
  serving::TenantTicket ticket_;
  serving::RequestRecord record_;
  serving::DeltaOrder order_;
  std::function<void()> on_settled_;
  std::int64_t generated_tokens_ = 0;
  bool is_reported_ = false;  ///< whether the end was reported to the observers before
  bool ended_ = false;
  serving::Session session_;  ///< declared last, because its events use the other members
};

}  // namespace

void run_resumable(ConnectionContext& context, GenerateOp op, std::shared_ptr<serving::ResumableStream> stream,
                   serving::TenantTicket ticket, std::int64_t prompt_tokens, serving::RequestRecord record) {
  const ResumableRequest::Facts facts{op.timing, op.request->stream, op.request->sampling.n, prompt_tokens};
  op.request->stream |= ticket.counts_tokens();  // else tokens before a disconnect would not be charged
  const auto request = std::make_shared<ResumableRequest>(context, context.models.all()[op.model], std::move(stream),
                                                          facts, std::move(ticket), std::move(record));
  request->submit(std::move(op.request));
}

void resume_recovered(ConnectionContext& context, serving::RecoveredRequest recovered,
                      std::function<void()> on_settled) {
  const auto& origin = recovered.origin;
  const auto drop = [&](const std::string& why) {
    serving::log_dropped(origin, why);
    on_settled();
  };
  const auto& keys = *context.config.keys;
  const auto principal = keys.find_principal(origin.name.owner);
  if (principal == nullptr && (!origin.name.owner.empty() || keys.requires_keys())) {
    return drop("its API key is no longer known");
  }
  auto stream = context.streams.open(context.io, origin.name, /*is_recovered=*/true);
  if (!stream) return drop(stream.error().message);
  serving::TenantTicket ticket;
  serving::RequestRecord record{.api = serving::kJsonLines, .request_id = origin.name.id, .route = "generate"};
  const std::string& adapter = recovered.request->adapter;
  record.generation.emplace().model = adapter.empty() ? context.models.first().info.name : adapter;
  record.generation->asked(recovered.request->sampling, recovered.request->open);
  if (principal) {
    ticket.adopt(principal->usage, 1);
    record.tenant = principal->tenant.name;
  }
  const ResumableRequest::Facts facts{origin.timing, origin.stream, recovered.request->sampling.n,
                                      std::ssize(*recovered.request->prompt_token_ids)};
  std::make_shared<ResumableRequest>(context, context.models.first(), std::move(*stream), facts, std::move(ticket),
                                     std::move(record))
      ->resume(std::move(recovered), std::move(on_settled));
}

}  // namespace pagoda::json_lines
