#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "io/http/generation.hpp"
#include "io/serving/recovered_request.hpp"

namespace pagoda::http {

class Exchange;
struct ApiContext;

/// Runs a job with an origin, as run_generation does: what it writes goes into a stream that outlives the exchange,
/// whose client is the first to follow it. I/O thread.
void run_resumable(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                   serving::SharedPrincipal principal);

/// Goes on with one that another process was running: its stream is there at once, with all the events that it had.
/// `settled` is called once, when the engine has taken it or it has ended. I/O thread, whose context `io` is.
void take_up(const ApiContext& context, boost::asio::io_context& io, serving::RecoveredRequest recovered,
             std::function<void()> settled);

}  // namespace pagoda::http
