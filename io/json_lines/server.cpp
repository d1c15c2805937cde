#include "io/json_lines/server.hpp"

#include <atomic>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "actors/retry_on_bad_alloc.hpp"
#include "engine/routing/queue_full.hpp"
#include "io/json_lines/connection.hpp"
#include "io/json_lines/resumable_request.hpp"
#include "io/serving/engine_watch.hpp"
#include "io/serving/listener.hpp"
#include "io/serving/run_io.hpp"

namespace pagoda::json_lines {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadChunkBytes = 64 << 10;

}  // namespace

class Server::State {
 public:
  State(caf::actor_system& system, serving::ServedModels models, ServerConfig server_config,
        std::shared_ptr<serving::Telemetry> server_telemetry)
      : telemetry(server_telemetry ? std::move(server_telemetry) : std::make_shared<serving::Telemetry>()),
        config(std::move(server_config)),
        streams(config.resume),
        listener(io),
        grace_end(io),
        work(io.get_executor()),
        context{io,         system, std::move(models), config, worker, std::vector<char>(kReadChunkBytes),
                *telemetry, streams} {
    for (const auto& model : context.models.all()) {
      context.line_models.push_back({model.names(), model.chat.get(), model.adapters.get()});
      context.closed_models.push_back({model.names(), nullptr, nullptr});
    }
  }

  Status listen() {
    if (auto status = listener.open(config.listen, "listen"); !status) return status;
    return listener.check_exposure("listen", config.keys->requires_keys(), config.allow_unauthenticated);
  }

  void let_in() {
    if (!ending) listener.accept([this](tcp::socket socket) { start_connection(std::move(socket)); });
  }

  void recover(std::shared_ptr<serving::Recovery> from) {
    recovery = std::move(from);
    for (auto& request : recovery->requests_of(serving::Api::json_lines)) {
      boost::asio::post(io, [this, request = std::move(request)]() mutable {
        resume_recovered(context, std::move(request), [this] { recovery->on_settled(); });
      });
    }
    recovery->on_complete([this] { boost::asio::post(io, [this] { let_in(); }); });
  }

  void run() {
    if (!recovery) let_in();
    for (const auto& model : context.models.all()) {
      engine_watches.emplace_back(io, model.router, [this] {
        const auto all = connections;  // a copy: a connection without pending output leaves the table
        for (const auto& [key, connection] : all) connection->on_engine_gone();
        for (const auto& [key, flush] : context.resumable) flush();
      });
    }
    thread = std::thread([this] { serving::run_io(io); });
  }

  void start_connection(tcp::socket socket) {
    if (connections.size() >= static_cast<std::size_t>(config.max_connections)) {
      std::string line;
      append_error(line, {}, {WireCode::queue_full, "too many connections", {}, routing::kRetryAfterMs});
      error_code ignored;  // the send buffer of a new socket has room for a short line
      socket.write_some(boost::asio::buffer(line), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
      return;
    }
    const auto connection = std::make_shared<Connection>(std::move(socket), context, [this](Connection& closed) {
      connections.erase(&closed);
      num_connections = connections.size();
      if (ending && connections.empty()) io.stop();
    });
    connections.emplace(connection.get(), connection);
    num_connections = connections.size();
    try {
      connection->start();
    } catch (const std::exception&) {  // the listener logs the error
      connection->close_now();
      throw;
    }
  }

  void end_connections(std::chrono::milliseconds grace) {
    listener.close();
    engine_watches.clear();
    ending = true;
    if (connections.empty()) return io.stop();
    const auto all = connections;
    if (grace.count() <= 0) {
      for (const auto& [key, connection] : all) connection->close_now();
      return;
    }
    for (const auto& [key, connection] : all) connection->flush_and_close();
    grace_end.expires_after(grace);
    grace_end.async_wait([this](const error_code& cancelled) {
      if (!cancelled) end_connections(std::chrono::milliseconds(0));
    });
  }

  // The order matters: objects that use `io` are destroyed before it. Connections that only `io` still holds are
  // destroyed with it, and use `telemetry`.
  std::shared_ptr<serving::Telemetry> telemetry;
  boost::asio::io_context io{1};
  ServerConfig config;
  serving::ResumableStreams streams;
  std::shared_ptr<serving::Recovery> recovery;  ///< may be null
  serving::Listener listener;
  boost::asio::steady_timer grace_end;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  boost::asio::thread_pool worker{1};
  ConnectionContext context;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;  ///< I/O thread
  std::deque<serving::EngineWatch> engine_watches;
  bool ending = false;  ///< I/O thread
  std::atomic<std::size_t> num_connections{0};
  std::thread thread;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  shutdown(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<Server>> Server::start(caf::actor_system& system, serving::ServedModels models,
                                              ServerConfig config, std::shared_ptr<serving::Telemetry> telemetry,
                                              std::shared_ptr<serving::Recovery> recovery) {
  if (auto problems = config.validate(); !problems.empty()) return fail(std::move(problems.front()));
  auto state = std::make_unique<State>(system, std::move(models), std::move(config), std::move(telemetry));
  if (auto status = state->listen(); !status) return fail(std::move(status.error()));
  if (recovery) state->recover(std::move(recovery));
  state->run();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

std::uint16_t Server::port() const {
  return state_->listener.port();
}

const std::string& Server::address() const {
  return state_->listener.address();
}

void Server::shutdown(std::chrono::milliseconds grace) {
  if (!state_->thread.joinable()) return;
  actors::retry_on_bad_alloc([&] {  // the join below waits for this handler
    boost::asio::post(state_->io, [state = state_.get(), grace] {
      actors::retry_on_bad_alloc([&] { state->end_connections(grace); });
    });
  });
  state_->thread.join();
  // The worker thread may still post results to `io`, which is destroyed soon.
  state_->worker.stop();
  state_->worker.join();
  state_->streams.close();  // allowed here: the I/O thread has ended
}

std::size_t Server::num_connections() const {
  return state_->num_connections;
}

}  // namespace pagoda::json_lines
