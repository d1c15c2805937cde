#include "io/http/local_api.hpp"

#include <ctime>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "actors/retry_on_bad_alloc.hpp"
#include "io/http/api_parts.hpp"
#include "io/http/exchange.hpp"
#include "io/serving/close_on_exception.hpp"
#include "io/serving/run_io.hpp"

namespace pagoda::http {

/// A request from the same process while it is answered. I/O thread only.
class LocalCall final : public AnswerPeer, public std::enable_shared_from_this<LocalCall> {
 public:
  /// Calls `on_end` once, in an event of its own, unless `close` is called before.
  LocalCall(boost::asio::io_context& io, serving::Telemetry& telemetry, std::function<void(LocalAnswer)> on_end)
      : io_(io), telemetry_(telemetry), on_end_(std::move(on_end)) {}

  void start(const Routes::Route* route, Request request) {
    // HTTP/1.0 has no chunks, so the bytes after the head are the body, for a stream too.
    AnswerForm form;
    form.request_id = request.request_id;
    form.style = error_style(request.path);
    form.is_http10 = true;
    serving::RequestRecord record{.api = serving::kHttp, .request_id = request.request_id, .client = "local"};
    record.method = "POST";
    if (route != nullptr) record.route = route->path;
    const auto exchange = std::make_shared<Exchange>(*this, std::move(form), std::move(record));
    exchange_ = exchange.get();
    if (route == nullptr) {
      return exchange->respond_error({404, "there is no route " + request.path, {}, "not_found"});
    }
    try {
      route->handler(exchange, std::move(request));
    } catch (const std::exception& error) {
      spdlog::error("request {}: {}", exchange->request_id(), error.what());
      if (exchange_ != nullptr) exchange->on_handler_failed();
    }
  }

  /// Ends the call without a callback.
  void close() {
    on_end_ = nullptr;
    if (auto* const exchange = std::exchange(exchange_, nullptr)) exchange->close();
  }

  /// Cuts the answer off.
  void close_now() {
    auto* const exchange = std::exchange(exchange_, nullptr);
    if (exchange == nullptr) return;
    exchange->close();
    end();
  }

  boost::asio::io_context& io() override { return io_; }
  serving::Telemetry& telemetry() override { return telemetry_; }
  std::string& output() override { return output_; }
  std::size_t unsent_bytes() const override { return 0; }
  bool may_keep_alive() const override { return false; }
  void check_reader(std::size_t) override {}

  /// Takes the written bytes of a stream, so that its writer continues.
  void send_soon() override {
    if (std::exchange(send_is_posted_, true)) return;
    boost::asio::post(io_, [self = shared_from_this()] {
      self->send_is_posted_ = false;
      serving::close_on_exception(*self, [&] {
        if (self->exchange_ == nullptr) return;
        self->exchange_->take_unframed(self->output_);
        const auto on_drained = self->exchange_->on_drained_;  // the callback may replace itself
        if (on_drained) on_drained();
      });
    });
  }

  void on_answer_end(bool) override {
    const auto& record = std::exchange(exchange_, nullptr)->record();
    answer_.status = record.status;
    if (record.generation) answer_.completion_tokens = record.generation->completion_tokens;
    constexpr std::string_view kHeadEnd = "\r\n\r\n";
    output_.erase(0, output_.find(kHeadEnd) + kHeadEnd.size());
    answer_.body = std::move(output_);
    end();
  }

  void abandon() override {
    exchange_ = nullptr;
    end();
  }

  void close_soon() override {
    boost::asio::post(io_, [self = shared_from_this()] { self->close_now(); });
  }

 private:
  void end() {
    actors::retry_on_bad_alloc([this] {
      boost::asio::post(io_, [self = shared_from_this()] {
        if (const auto on_end = std::exchange(self->on_end_, nullptr)) on_end(std::move(self->answer_));
      });
    });
  }

  boost::asio::io_context& io_;
  serving::Telemetry& telemetry_;
  std::function<void(LocalAnswer)> on_end_;
  Exchange* exchange_ = nullptr;  ///< the exchange that answers; null after the answer
  bool send_is_posted_ = false;
  std::string output_;
  LocalAnswer answer_;
};

class LocalApi::State {
 public:
  State(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config)
      : parts(system, std::move(models), config, nullptr, [] {}),
        routes(parts.routes(/*has_page=*/false)),
        engine_watches(parts.watch_engines(io)),
        thread([this] { serving::run_io(io); }) {}

  ~State() {
    parts.context.is_draining = parts.context.is_ending = true;
    actors::retry_on_bad_alloc([&] {  // the join below waits for this handler
      boost::asio::post(io, [this] { close_all(); });
    });
    thread.join();
    parts.end();
  }

  void begin(LocalRequest local, const std::function<void(LocalAnswer)>& on_answer) {
    const auto match = routes.match(Verb::post, local.path);
    const auto number = next_call++;
    const auto call = std::make_shared<LocalCall>(io, *parts.telemetry, [this, number, on_answer](LocalAnswer answer) {
      calls.erase(number);
      on_answer(std::move(answer));
    });
    calls.emplace(number, call);
    Request request;
    request.verb = Verb::post;
    request.path = std::move(local.path);
    request.params = match.params;
    request.body = std::move(local.body);
    request.request_id = std::move(local.request_id);
    request.created = std::time(nullptr);
    call->start(match.route, std::move(request));
  }

  void close_all() {
    const auto all = std::exchange(calls, {});
    for (const auto& [number, call] : all) call->close();
    io.stop();
  }

  // Members that use `io` are declared after it, and members that its handlers use before it.
  ApiParts parts;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  const Routes routes;
  std::deque<serving::EngineWatch> engine_watches;
  std::unordered_map<std::uint64_t, std::shared_ptr<LocalCall>> calls;  ///< live calls; I/O thread
  std::uint64_t next_call = 0;                                          ///< I/O thread
  std::thread thread;
};

LocalApi::LocalApi(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config)
    : state_(std::make_unique<State>(system, std::move(models), config)) {}
LocalApi::~LocalApi() = default;

bool LocalApi::serves(const std::string& path) const {
  return state_->routes.match(Verb::post, path).route != nullptr;
}

void LocalApi::post(LocalRequest request, std::function<void(LocalAnswer)> on_answer) {
  boost::asio::post(state_->io,
                    [state = state_.get(), request = std::move(request), on_answer = std::move(on_answer)]() mutable {
                      state->begin(std::move(request), on_answer);
                    });
}

}  // namespace pagoda::http
