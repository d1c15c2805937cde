#include "io/http/engine_query.hpp"

#include <exception>
#include <utility>
#include <vector>

#include "io/http/error_answer.hpp"

namespace pagoda::http {
namespace {

struct RoutedQuestion {
  actors::RequestRouterActor router;
  serving::Query question;
};

/// Sends questions and answers an exchange with the results. The exchange's on_closed holds the object until the
/// exchange is answered or its client has disconnected.
class EngineQuery : public std::enable_shared_from_this<EngineQuery> {
 public:
  using OnAnswers = std::function<void(Exchange&, std::vector<serving::Answer>&)>;

  EngineQuery(const ApiContext& context, std::shared_ptr<Exchange> exchange, OnAnswers on_answers,
              unsigned error_status)
      : exchange_(std::move(exchange)),
        on_answers_(std::move(on_answers)),
        error_status_(error_status),
        session_(exchange_->io(), context.system, [this](std::vector<serving::Event>& events) { on_events(events); }) {}

  void start(std::vector<RoutedQuestion> asked, std::function<void()> on_sent) {
    exchange_->on_closed([self = shared_from_this()] { self->session_.close(); });
    answers_.resize(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) session_.ask(asked[i].router, i, std::move(asked[i].question));
    if (on_sent) session_.after_sent(std::move(on_sent));
  }

 private:
  void on_events(std::vector<serving::Event>& events) {
    const auto self = shared_from_this();
    try {
      take_answers(events);
    } catch (const std::exception& error) {
      exchange_->cut_off(error.what());
    }
  }

  void take_answers(std::vector<serving::Event>& events) {
    for (auto& event : events) {
      if (std::holds_alternative<serving::SessionFailed>(event) && !exchange_->has_begun()) {
        session_.close();
        return exchange_->respond_error(error_answer(serving::session_failure()));
      }
      auto* answered = std::get_if<serving::QueryAnswered>(&event);
      if (answered == nullptr) continue;
      answers_[static_cast<std::size_t>(answered->tag)] = std::move(answered->answer);
      if (++num_answers_ < answers_.size()) continue;
      session_.close();
      if (exchange_->has_begun()) return;  // already answered, for example by answer_within
      for (const auto& answer : answers_) {
        if (const auto* error = std::get_if<Error>(&answer)) return respond_error(*error);
      }
      return on_answers_(*exchange_, answers_);
    }
  }

  void respond_error(const Error& error) {
    auto answer = error_answer(error);
    if (error_status_ != 0) answer.status = error_status_;
    exchange_->respond_error(answer);
  }

  const std::shared_ptr<Exchange> exchange_;
  OnAnswers on_answers_;
  const unsigned error_status_;
  std::vector<serving::Answer> answers_;  ///< by question
  std::size_t num_answers_ = 0;
  serving::Session session_;
};

void start_query(const ApiContext& context, std::vector<RoutedQuestion> asked, std::shared_ptr<Exchange> exchange,
                 EngineQuery::OnAnswers on_answers, unsigned error_status, std::function<void()> on_sent = {}) {
  if (!exchange->is_open()) return;  // the client has gone
  std::make_shared<EngineQuery>(context, std::move(exchange), std::move(on_answers), error_status)
      ->start(std::move(asked), std::move(on_sent));
}

}  // namespace

void query_model(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
                 serving::Query question, std::function<void(Exchange&, serving::Answer&)> on_answer,
                 unsigned error_status, std::function<void()> on_sent) {
  start_query(
      context, {{model.router, std::move(question)}}, std::move(exchange),
      [on_answer = std::move(on_answer)](Exchange& answering, std::vector<serving::Answer>& answers) {
        on_answer(answering, answers.front());
      },
      error_status, std::move(on_sent));
}

void query_model_each(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
                      std::vector<serving::Query> questions,
                      std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers) {
  std::vector<RoutedQuestion> asked;
  for (auto& question : questions) asked.push_back({model.router, std::move(question)});
  start_query(context, std::move(asked), std::move(exchange), std::move(on_answers), /*error_status=*/0);
}

void query_all_models(const ApiContext& context, std::shared_ptr<Exchange> exchange, const serving::Query& question,
                      std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers, unsigned error_status) {
  std::vector<RoutedQuestion> asked;
  for (const auto& model : context.models.all()) asked.push_back({model.router, question});
  start_query(context, std::move(asked), std::move(exchange), std::move(on_answers), error_status);
}

std::shared_ptr<boost::asio::steady_timer> answer_within(std::chrono::steady_clock::duration time,
                                                         const std::shared_ptr<Exchange>& exchange,
                                                         std::function<void(Exchange&)> on_late) {
  const auto deadline = std::make_shared<boost::asio::steady_timer>(exchange->io(), time);
  deadline->async_wait([weak = std::weak_ptr(exchange), deadline,
                        on_late = std::move(on_late)](const boost::system::error_code& cancelled) {
    const auto waiting = weak.lock();
    if (!cancelled && waiting && !waiting->has_begun()) on_late(*waiting);
  });
  return deadline;
}

}  // namespace pagoda::http
