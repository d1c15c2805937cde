#include "io/http/resumable_generation.hpp"

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "io/http/api_context.hpp"
#include "io/http/body.hpp"
#include "io/http/exchange.hpp"
#include "io/http/job_charges.hpp"
#include "io/http/limit_headers.hpp"
#include "io/http/prompt_echo.hpp"
#include "io/http/stream_follower.hpp"
#include "io/serving/delta_order.hpp"
#include "io/serving/prompt_log.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {
namespace {

/// Generates for one prompt into a stream. The stream holds the object until the generation ends or the stream is given
/// up. The exchange of the first client only follows the stream. Until the answer begins, the object itself is the
/// stream's reader for this client.
class ResumableGeneration final : public serving::StreamReader,
                                  public std::enable_shared_from_this<ResumableGeneration> {
 public:
  ResumableGeneration(const ApiContext& context, boost::asio::io_context& io, GenerationJob job,
                      serving::SharedPrincipal principal, std::shared_ptr<serving::ResumableStream> stream)
      : context_(context),
        job_(std::move(job)),
        charges_(std::move(principal)),
        stream_(std::move(stream)),
        order_(job_.requests.front().sampling.n),
        session_(io, context.system, [this](std::vector<serving::Event>& events) { on_events(events); }) {
    generation_.model = job_.model->info.name;
    generation_.asked(job_.requests.front().sampling, job_.requests.front().open);
  }
  ~ResumableGeneration() { context_.engine_end.unsubscribe(this); }

  void start(const std::shared_ptr<Exchange>& exchange) {
    auto& request = job_.requests.front();
    request.request_id = job_.origin->name.id;
    request.resume = serving::note_of(*job_.origin, context_.streams.config());
    first_ = exchange;
    record_ = exchange->record();
    const auto refusal = charges_.admit(*context_.keys, job_.requests);
    add_limit_headers(*exchange, charges_.principal());
    if (refusal) {
      generation_.finish_reason = "error";
      complete_record();
      stream_->withdraw();
      return exchange->respond_error(limit_answer(*refusal));
    }
    stream_->admitted();
    waiting_ = exchange;
    stream_->attach(*this);
    exchange->on_closed([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->stop_waiting();  // the request continues
    });
    live_with_stream();
    ask();
  }

  void resume(serving::RecoveredRequest recovered, std::function<void()> on_settled) {
    on_settled_ = std::move(on_settled);
    is_reported_ = recovered.request->progress->has_ended();  // by the earlier process
    const auto& origin = recovered.origin;
    record_ = {.request_id = origin.name.id, .method = "POST", .route = origin.path};
    if (const auto& principal = charges_.principal()) record_.tenant = principal->tenant.name;
    recovered_ = std::move(recovered);
    charges_.resume();
    stream_->await_reader();
    live_with_stream();
    ask();
  }

  void on_events() override {}  // the client's answer begins with the first event
  void on_replaced() override {
    const auto exchange = std::exchange(waiting_, nullptr);
    if (exchange) exchange->respond_error({409, "another connection reads the stream of this request", {}, "replaced"});
  }
  std::uint64_t next_event() const override { return 0; }

 private:
  const actors::RequestRouterActor& router() const { return job_.model->router; }

  void live_with_stream() {
    stream_->on_cancel([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->is_cancelled_ = true;
      self->session_.cancel(self->router(), 0);
    });
    stream_->on_give_up([self = shared_from_this()] { self->finish(); });
    context_.engine_end.subscribe(this, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->session_.flush();
    });
  }

  void ask() {
    if (!job_.echo) return submit();
    echo_.emplace(job_, session_).send_questions();
  }

  void submit() {
    if (recovered_) {
      submit_again();
    } else {
      submit_first();
    }
    if (is_cancelled_) session_.cancel(router(), 0);  // cancelled while the engine still worked on the prompt to echo
  }

  void submit_first() {
    auto& request = job_.requests.front();
    if (context_.log_prompts) serving::log_prompt(request);
    request.stream = true;
    session_.submit(router(), 0, std::make_shared<const GenerateRequest>(std::move(request)));
  }

  /// Writes the outputs of the earlier process to the stream before any client can follow the stream.
  void submit_again() {
    begin(std::ssize(*recovered_->request->prompt_token_ids));
    std::vector<SequenceDelta> deltas;
    for (auto& delta : recovered_->delivered) {
      charges_.output_before(0, std::ssize(delta.token_ids));
      streamed_tokens_ += std::ssize(delta.token_ids);
      order_.add(std::move(delta), deltas);
    }
    generation_.completion_tokens = streamed_tokens_;
    write(deltas);
    stream_->notify_reader();
    session_.submit(router(), 0, std::move(recovered_->request));
  }

  // -- events

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

  void on_event(serving::QueryAnswered& answered) {
    if (auto error = echo_->on_answer(answered)) return fail_with(std::move(*error));
    if (echo_->is_sent()) submit();
  }

  void on_event(serving::Accepted& accepted) {
    charges_.prompt(0, accepted.prompt_tokens);
    is_accepted_ = true;
    settle();
    auto prompt_tokens = accepted.prompt_tokens;
    // A request that has already ended is accepted without its number of prompt tokens.
    if (prompt_tokens == 0 && !early_outputs_.empty() && early_outputs_.back().done) {
      prompt_tokens = early_outputs_.back().done->usage.prompt_tokens;
    }
    if (!has_begun_) begin(prompt_tokens);
    for (auto& output : std::exchange(early_outputs_, {})) {
      if (!ended_) take(output);
    }
  }

  void on_event(serving::Refused& refused) {
    charges_.refused();
    fail_with(std::move(refused.error));
  }
  void on_event(serving::FlushMark&) { fail_with({ErrorCode::internal, "the engine has stopped"}); }
  void on_event(serving::SessionFailed&) { fail_with(serving::session_failure()); }

  void on_event(OutputBatch& batch) {
    for (auto& output : batch.outputs) {
      if (!is_accepted_) {
        early_outputs_.push_back(std::move(output));
      } else if (!ended_) {
        take(output);
      }
    }
  }

  void take(RequestOutput& output) {
    if (output.error) return fail_with(std::move(*output.error));
    std::vector<SequenceDelta> deltas;
    for (auto& delta : output.deltas) {
      charges_.output(0, std::ssize(delta.token_ids));
      streamed_tokens_ += std::ssize(delta.token_ids);
      order_.add(std::move(delta), deltas);
    }
    generation_.completion_tokens = streamed_tokens_;
    if (output.done) order_.finish(deltas);
    write(deltas);
    if (output.done) on_done(*output.done);
  }

  void on_done(const RequestResult& result) {
    generation_.done(result, streamed_tokens_);
    charges_.done(0, result.usage);
    std::string out;
    job_.writer->done(out, 0, result);
    job_.writer->end(out);
    publish(out);
    finish();
  }

  // -- the stream

  void begin(std::int64_t prompt_tokens) {
    has_begun_ = true;
    generation_.prompt_tokens = prompt_tokens;
    std::string out;
    job_.writer->begin(out, prompt_tokens);
    publish(out);
    if (const auto exchange = std::exchange(waiting_, nullptr)) {
      add_limit_headers(*exchange, charges_.principal());
      follow_stream(exchange, stream_, 0);
    }
  }

  void write(const std::vector<SequenceDelta>& deltas) {
    std::string out;
    for (const auto& delta : deltas) job_.writer->delta(out, 0, delta);
    publish(out);
  }

  /// Adds server-sent events, each of which ends with an empty line, to the stream with their numbers.
  void publish(std::string_view text) {
    constexpr std::string_view kEnd = "\n\n";
    for (auto end = text.find(kEnd); end != std::string_view::npos; end = text.find(kEnd)) {
      auto event = "id: " + std::to_string(stream_->history().next()) + "\n";
      event += text.substr(0, end + kEnd.size());
      stream_->add(std::move(event));
      text.remove_prefix(end + kEnd.size());
    }
  }

  void fail_with(Error error) {
    const auto answer = error_answer(rename_field(job_.names, std::move(error)));
    generation_.finish_reason = "error";
    if (has_begun_) {
      std::string out;
      job_.writer->error(out, answer);
      publish(out);
      return finish();
    }
    const auto exchange = std::exchange(waiting_, nullptr);
    finish();
    stream_->withdraw();
    if (exchange) exchange->respond_error(answer);
  }

  void finish() {
    const auto self = shared_from_this();
    if (std::exchange(ended_, true)) return;
    charges_.end();
    complete_record();
    session_.close();
    settle();
    stop_waiting();
    stream_->end();
  }

  void settle() {
    if (const auto on_settled = std::exchange(on_settled_, nullptr)) on_settled();
  }

  void stop_waiting() {
    waiting_ = nullptr;
    stream_->detach(*this);
  }

  /// Reports the generation with the first exchange's record. If that record was already reported, reports the
  /// generation separately.
  void complete_record() {
    if (is_reported_) return;
    if (generation_.finish_reason.empty()) generation_.finish_reason = "abort";
    if (const auto exchange = first_.lock(); exchange && !exchange->is_reported()) {
      exchange->record().generation = generation_;
    } else {
      record_.generation = generation_;
      context_.telemetry->generated(record_);
    }
  }

  const ApiContext& context_;
  GenerationJob job_;
  JobCharges charges_;
  const std::shared_ptr<serving::ResumableStream> stream_;
  serving::DeltaOrder order_;
  std::optional<serving::RecoveredRequest> recovered_;  ///< state of the earlier process
  std::function<void()> on_settled_;
  std::shared_ptr<Exchange> waiting_;  ///< exchange whose answer has not begun
  std::weak_ptr<Exchange> first_;
  serving::RequestRecord record_;  ///< copy of the first exchange's record from its start
  serving::GenerationRecord generation_;
  std::vector<RequestOutput> early_outputs_;  ///< outputs that came before the request was accepted
  std::int64_t streamed_tokens_ = 0;
  bool is_accepted_ = false;
  bool is_cancelled_ = false;
  bool has_begun_ = false;
  bool is_reported_ = false;  ///< whether the generation was reported
  bool ended_ = false;
  serving::Session session_;  ///< declared after all members that its events use; only echo_ uses it and comes later
  std::optional<PromptEcho> echo_;
};

}  // namespace

void run_resumable(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                   serving::SharedPrincipal principal) {
  auto stream = context.streams.open(exchange->io(), job.origin->name);
  if (!stream) return exchange->respond_error(error_answer(stream.error()));
  std::make_shared<ResumableGeneration>(context, exchange->io(), std::move(job), std::move(principal),
                                        std::move(*stream))
      ->start(exchange);
}

void resume_recovered(const ApiContext& context, boost::asio::io_context& io, serving::RecoveredRequest recovered,
                      std::function<void()> on_settled) {
  const auto& origin = recovered.origin;
  const auto drop = [&](const std::string& why) {
    serving::log_dropped(origin, why);
    on_settled();
  };
  auto principal = context.keys->find_principal(origin.name.owner);
  if (principal == nullptr && (!origin.name.owner.empty() || context.keys->requires_keys())) {
    return drop("its API key is no longer known");
  }
  Request request;
  request.verb = Verb::post;
  request.path = origin.path;
  request.body = origin.body;
  request.request_id = origin.name.id;
  request.own_id = origin.own_id;
  request.created = origin.created;
  request.principal = principal;
  auto job = reparse_job(context, request, recovered.request->adapter);
  if (!job) return drop(job.error().message);
  auto stream = context.streams.open(io, origin.name, /*is_recovered=*/true);
  if (!stream) return drop(stream.error().message);
  job->origin = origin;
  std::make_shared<ResumableGeneration>(context, io, std::move(*job), std::move(principal), std::move(*stream))
      ->resume(std::move(recovered), std::move(on_settled));
}

}  // namespace pagoda::http
