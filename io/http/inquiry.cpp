#include "io/http/inquiry.hpp"

#include <exception>
#include <utility>
#include <vector>

#include "io/http/error_answer.hpp"

namespace pagoda::http {
namespace {

/// Held by the exchange until it is answered or its client has gone.
class Inquiry : public std::enable_shared_from_this<Inquiry> {
 public:
  using OnAnswer = std::function<void(Exchange&, serving::Answer&)>;

  Inquiry(const ApiContext& context, std::shared_ptr<Exchange> exchange, OnAnswer on_answer, unsigned error_status)
      : exchange_(std::move(exchange)),
        on_answer_(std::move(on_answer)),
        error_status_(error_status),
        session_(exchange_->io(), context.system, context.router,
                 [this](std::vector<serving::Event>& events) { on_events(events); }) {}

  void start(serving::Question question) {
    exchange_->on_closed([self = shared_from_this()] { self->session_.close(); });
    session_.ask(0, std::move(question));
  }

 private:
  void on_events(std::vector<serving::Event>& events) {
    const auto self = shared_from_this();
    try {
      take_answer(events);
    } catch (const std::exception& error) {
      exchange_->cut_off(error.what());
    }
  }

  void take_answer(std::vector<serving::Event>& events) {
    for (auto& event : events) {
      auto* answered = std::get_if<serving::Answered>(&event);
      if (answered == nullptr) continue;
      session_.close();
      if (exchange_->has_begun()) return;  // somebody lost patience
      if (const auto* error = std::get_if<Error>(&answered->answer)) {
        auto answer = error_answer(*error);
        if (error_status_ != 0) answer.status = error_status_;
        exchange_->respond_error(answer);
      } else {
        on_answer_(*exchange_, answered->answer);
      }
      return;
    }
  }

  const std::shared_ptr<Exchange> exchange_;
  OnAnswer on_answer_;
  const unsigned error_status_;
  serving::Session session_;
};

}  // namespace

void inquire(const ApiContext& context, std::shared_ptr<Exchange> exchange, serving::Question question,
             std::function<void(Exchange&, serving::Answer&)> on_answer, unsigned error_status) {
  if (!exchange->is_open()) return;  // its client has gone meanwhile
  std::make_shared<Inquiry>(context, std::move(exchange), std::move(on_answer), error_status)
      ->start(std::move(question));
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
