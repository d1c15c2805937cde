#include "io/http/generation.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "io/http/api_context.hpp"
#include "io/http/exchange.hpp"
#include "io/http/job_charges.hpp"
#include "io/http/limit_headers.hpp"
#include "io/http/prompt_echo.hpp"
#include "io/http/resumable_generation.hpp"
#include "io/serving/prompt_log.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {
namespace {

/// Maximum time that the head of a stream waits for the first output.
constexpr auto kHeadDelay = std::chrono::seconds(1);
constexpr std::size_t kCoalesceBytes = 64 << 10;  // unsent bytes above which the deltas of a sequence are merged

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// Generation of one HTTP request. The exchange's on_closed holds it, and it holds the exchange, until the answer is
/// complete or the client has gone.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
             serving::SharedPrincipal principal)
      : context_(context),
        charges_(std::move(principal)),
        engine_end_(context.engine_end),
        exchange_(std::move(exchange)),
        head_deadline_(exchange_->io()),
        job_(std::move(job)),
        streamed_tokens_(job_.requests.size()),
        results_(job_.requests.size()),
        session_(exchange_->io(), context.system, [this](std::vector<serving::Event>& events) { on_events(events); }) {}

  ~Generation() { engine_end_.unsubscribe(this); }

  void start() {
    auto& record = exchange_->record().generation.emplace();
    record.model = job_.model->info.name;
    record.asked(job_.requests.front().sampling, job_.requests.front().open);
    if (!is_admitted()) return;
    engine_end_.subscribe(this, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_engine_gone();
    });
    exchange_->on_closed([self = shared_from_this()] { self->session_.close(); });
    exchange_->on_drained([this] { flush_held(); });
    if (job_.echo) {
      echo_.emplace(job_, session_).send_questions();
    } else {
      submit_all();
    }
  }

 private:
  using Key = std::pair<std::size_t, std::int32_t>;  ///< (prompt, sequence)

  // -- the limits of the key's principal

  bool is_admitted() {
    for (auto& request : job_.requests) request.request_id = exchange_->request_id();
    const auto refusal = charges_.admit(*context_.keys, job_.requests);
    add_limit_headers();
    if (!refusal) return true;
    ended_ = true;
    record().finish_reason = "error";
    exchange_->respond_error(limit_answer(*refusal));
    return false;
  }

  void add_limit_headers() { http::add_limit_headers(*exchange_, charges_.principal()); }

  const actors::RequestRouterActor& router() const { return job_.model->router; }

  void on_event(serving::QueryAnswered& answered) {
    if (auto error = echo_->on_answer(answered)) return fail_with(std::move(*error));
    if (echo_->is_sent()) submit_all();
  }

  // -- the engine's part

  void submit_all() {
    for (std::size_t i = 0; i < job_.requests.size(); ++i) {
      auto& request = job_.requests[i];
      if (context_.log_prompts) serving::log_prompt(request);
      request.stream = job_.stream || charges_.counts_tokens();
      session_.submit(router(), i, std::make_shared<const GenerateRequest>(std::move(request)));
    }
    if (job_.on_sent) session_.after_sent(std::move(job_.on_sent));
  }

  void on_events(std::vector<serving::Event>& events) {
    const auto self = shared_from_this();
    or_cut_off([&] {
      for (auto& event : events) {
        if (ended_) return;
        std::visit([this](auto& e) { on_event(e); }, event);
      }
      send();
    });
  }

  template <class What>
  void or_cut_off(const What& what) {
    try {
      what();
    } catch (const std::exception& error) {
      exchange_->cut_off(error.what());
    }
  }

  void on_event(serving::Accepted& accepted) {
    prompt_tokens_ += accepted.prompt_tokens;
    charges_.prompt(static_cast<std::size_t>(accepted.tag), accepted.prompt_tokens);
    record().prompt_tokens = prompt_tokens_;
    if (++accepted_ == job_.requests.size()) begin();
  }

  void on_event(serving::Refused& refused) {
    if (accepted_ == 0) charges_.refused();
    fail_with(std::move(refused.error));
  }
  void on_event(serving::FlushMark&) { fail_with({ErrorCode::internal, "the engine has stopped"}); }
  void on_event(serving::SessionFailed&) { fail_with(serving::session_failure()); }

  void on_event(OutputBatch& batch) {
    for (auto& output : batch.outputs) {
      if (ended_) return;
      if (output.error) return fail_with(std::move(*output.error));
      const auto prompt = static_cast<std::size_t>(output.tag);
      for (const auto& delta : output.deltas) charges_.output(prompt, std::ssize(delta.token_ids));
      if (job_.stream) {
        for (auto& delta : output.deltas) {
          streamed_tokens_[prompt] += std::ssize(delta.token_ids);
          record().completion_tokens += std::ssize(delta.token_ids);
          add_delta(prompt, std::move(delta));
        }
      }
      if (output.done) on_done(prompt, std::move(*output.done));
    }
  }

  serving::GenerationRecord& record() { return *exchange_->record().generation; }

  void on_done(std::size_t prompt, RequestResult result) {
    record().done(result, streamed_tokens_[prompt]);
    charges_.done(prompt, result.usage);
    if (job_.stream) awaiting_accept_ ? held_done_.push_back(prompt) : write_done(prompt, result);
    results_[prompt] = std::move(result);
    ++num_done_;
    if (!awaiting_accept_) finish_when_done();
  }

  // -- the answer

  /// Begins the answer when every prompt is accepted, so that a refusal can have its own status. The head of a stream
  /// also waits for the first output: a packet for the head alone would cost as much as a packet with a token. Outputs
  /// that come before all prompts are accepted are held.
  void begin() {
    awaiting_accept_ = false;
    if (prompt_tokens_ == 0) {  // requests that have already ended were accepted without their count
      for (const auto prompt : held_done_) prompt_tokens_ += results_[prompt].usage.prompt_tokens;
      record().prompt_tokens = prompt_tokens_;
    }
    if (job_.stream) {
      job_.writer->begin(out_, prompt_tokens_);
      if (!held_.empty()) begin_stream();  // held outputs are sent after the head
      for (const auto prompt : std::exchange(held_done_, {})) write_done(prompt, results_[prompt]);
    }
    finish_when_done();
    if (job_.stream && !ended_ && !exchange_->has_begun()) wait_for_output();
  }

  void begin_stream() {
    if (exchange_->has_begun()) return;
    head_deadline_.cancel();
    add_limit_headers();
    exchange_->begin_stream(200, job_.writer->stream_content_type(), {{"cache-control", "no-cache"}});
  }

  /// Sends the head after a while even without output, so that the client knows that its request was accepted.
  void wait_for_output() {
    head_deadline_.expires_after(kHeadDelay);
    head_deadline_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
      const auto self = weak.lock();
      if (cancelled || !self || self->ended_) return;
      self->or_cut_off([&] {
        self->begin_stream();
        self->send();
      });
    });
  }

  void add_delta(std::size_t prompt, SequenceDelta delta) {
    const Key key{prompt, delta.index};
    if (!awaiting_accept_) begin_stream();
    if (!awaiting_accept_ && held_.empty() && exchange_->unsent_bytes() + out_.size() < kCoalesceBytes) {
      return job_.writer->delta(out_, prompt, delta);
    }
    const auto [it, is_new] = held_.try_emplace(key, std::move(delta));
    if (is_new) return;
    it->second.text += delta.text;
    append(it->second.token_ids, delta.token_ids);
    it->second.logprobs.add(delta.logprobs);
  }

  void write_held(std::size_t prompt) {
    for (auto it = held_.lower_bound({prompt, 0}); it != held_.end() && it->first.first == prompt;) {
      job_.writer->delta(out_, prompt, it->second);
      it = held_.erase(it);
    }
  }

  void write_held() {
    for (const auto& [key, delta] : held_) job_.writer->delta(out_, key.first, delta);
    held_.clear();
  }

  void write_done(std::size_t prompt, const RequestResult& result) {
    begin_stream();
    write_held(prompt);
    job_.writer->done(out_, prompt, result);
  }

  void flush_held() {
    if (awaiting_accept_ || ended_) return;
    write_held();
    send();
  }

  void finish_when_done() {
    if (num_done_ < job_.requests.size()) return;
    const auto exchange = exchange_;
    ended_ = true;
    charges_.end();
    if (job_.stream) {
      job_.writer->end(out_);
      exchange->write(std::exchange(out_, {}));
      exchange->end_stream();
    } else {
      job_.writer->whole(out_, results_);
      add_limit_headers();
      exchange->respond(200, "application/json", std::move(out_));
    }
    session_.close();
  }

  void fail_with(Error error) {
    const auto answer = error_answer(rename_field(job_.names, std::move(error)));
    ended_ = true;
    charges_.end();
    record().finish_reason = "error";
    add_limit_headers();
    if (!exchange_->has_begun()) {
      exchange_->respond_error(answer);
    } else {
      write_held();
      job_.writer->error(out_, answer);
      exchange_->write(std::exchange(out_, {}));
      exchange_->end_stream();
    }
    session_.close();
  }

  /// Waits for the outputs that the engine has sent before it ended: see FlushMark.
  void on_engine_gone() { session_.flush(); }

  void send() {
    if (ended_ || out_.empty() || !exchange_->has_begun()) return;
    exchange_->write(out_);
    out_.clear();
  }

  const ApiContext& context_;
  JobCharges charges_;
  EngineEnd& engine_end_;
  const std::shared_ptr<Exchange> exchange_;
  boost::asio::steady_timer head_deadline_;
  GenerationJob job_;

  std::size_t accepted_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::vector<std::int64_t> streamed_tokens_;  ///< by prompt
  std::vector<RequestResult> results_;
  std::size_t num_done_ = 0;

  std::string out_;                     ///< bytes of the stream that were not passed to the exchange
  std::map<Key, SequenceDelta> held_;   ///< merged deltas, while the answer has not begun or the client reads slowly
  std::vector<std::size_t> held_done_;  ///< prompts that were done before the answer began
  bool awaiting_accept_ = true;         ///< whether prompts are not accepted yet; the answer then has not begun
  bool ended_ = false;
  serving::Session session_;  ///< declared after all members that its events use; only echo_ uses it and comes later
  std::optional<PromptEcho> echo_;
};

}  // namespace

void GenerationJob::set_model(serving::SharedModel chosen) {
  model = std::move(chosen);
  for (auto& request : requests) request.adapter = model->adapter();
}

Error rename_field(const FieldNames& names, Error error) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.first == error.param; });
  if (found == names.end()) return error;
  const bool begins_with_name = error.message.starts_with(found->first) && error.code != ErrorCode::context_too_long;
  if (begins_with_name) error.message.replace(0, found->first.size(), found->second);
  error.param = found->second;
  return error;
}

FieldNames field_names(std::string_view prompt, FieldNames others) {
  others.insert(others.end(), {{"prompt", prompt}, {"prompt_token_ids", prompt}, {"prompt_literals", prompt}});
  return others;
}

void run_generation(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                    serving::SharedPrincipal principal) {
  if (!exchange->is_open()) return;  // the client has gone
  if (job.origin) return run_resumable(context, std::move(exchange), std::move(job), std::move(principal));
  std::make_shared<Generation>(context, std::move(exchange), std::move(job), std::move(principal))->start();
}

}  // namespace pagoda::http
