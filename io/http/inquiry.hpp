#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "io/http/api_context.hpp"
#include "io/http/exchange.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// Asks a model's engine one thing and answers the exchange with what comes of it. I/O thread. An error of the engine
/// becomes the exchange's, with `error_status` unless that is 0; `on_answer` gets everything else. `behind` is called,
/// on any thread, when the question has been sent.
void inquire(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
             serving::Question question, std::function<void(Exchange&, serving::Answer&)> on_answer,
             unsigned error_status = 0, std::function<void()> behind = {});

/// Asks a model's engine several things, at least one: `on_answers` gets the answers in the order of the questions. The
/// first error is the exchange's.
void inquire_each(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
                  std::vector<serving::Question> questions,
                  std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers);

/// The same of every model: `on_answers` gets an answer for each, in their order. The first error is the exchange's.
void inquire_of_all(const ApiContext& context, std::shared_ptr<Exchange> exchange, const serving::Question& question,
                    std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers,
                    unsigned error_status = 0);

/// Whoever asked waits no longer than this: then `on_late` answers, unless the exchange is answered, or the timer
/// cancelled, by then.
std::shared_ptr<boost::asio::steady_timer> answer_within(std::chrono::steady_clock::duration time,
                                                         const std::shared_ptr<Exchange>& exchange,
                                                         std::function<void(Exchange&)> on_late);

}  // namespace pagoda::http
