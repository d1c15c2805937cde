#include "io/http/server.hpp"

#include <atomic>
#include <exception>
#include <thread>
#include <unordered_map>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "actors/retry_on_bad_alloc.hpp"
#include "io/http/connection.hpp"
#include "io/http/gate.hpp"
#include "io/http/tls.hpp"
#include "io/serving/listener.hpp"
#include "io/serving/run_io.hpp"

namespace pagoda::http {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadChunkBytes = 64 << 10;
// Number of connections beyond the limit that get an error answer. Further connections are closed without an answer.
constexpr std::size_t kMaxRefusedConnections = 64;

}  // namespace

class Server::State {
 public:
  State(ServerConfig server_config, Routes server_routes, std::shared_ptr<serving::Telemetry> server_telemetry)
      : telemetry(server_telemetry ? std::move(server_telemetry) : std::make_shared<serving::Telemetry>()),
        config(std::move(server_config)),
        routes(std::move(server_routes)),
        gate(config, routes),
        listener(io),
        grace_end(io),
        work(io.get_executor()),
        context{io, config, gate, *telemetry, nullptr, std::vector<char>(kReadChunkBytes)} {}

  Status listen() {
    if (!config.tls_cert.empty()) {
      auto loaded = TlsContext::load(config.tls_cert, config.tls_key);
      if (!loaded) return fail(std::move(loaded.error()));
      tls = std::move(*loaded);
      context.tls = tls.get();
    }
    if (auto status = listener.open(config.http, "http"); !status) return status;
    return listener.check_exposure("http", config.keys->requires_keys(), config.allow_unauthenticated);
  }

  void let_in() {
    if (!ending) listener.accept([this](tcp::socket socket) { start_connection(std::move(socket)); });
  }

  void run(bool lets_in) {
    if (lets_in) let_in();
    thread = std::thread([this] { serving::run_io(io); });
  }

  void start_connection(tcp::socket socket) {
    const auto limit = static_cast<std::size_t>(config.http_max_connections);
    if (connections.size() >= limit + kMaxRefusedConnections) return;
    const bool is_too_many = connections.size() >= limit;
    const auto connection =
        std::make_shared<Connection>(std::move(socket), context, is_too_many, [this](Connection& closed) {
          connections.erase(&closed);
          num_connections = connections.size();
          if (ending && connections.empty()) io.stop();
        });
    connections.emplace(connection.get(), connection);
    num_connections = connections.size();
    try {
      connection->start();
    } catch (const std::exception&) {  // the connection has no operation that would end it; the listener logs the error
      connection->close_now();
      throw;
    }
  }

  void end_connections(std::chrono::milliseconds grace) {
    listener.close();
    context.draining = true;
    ending = true;
    if (connections.empty()) return io.stop();
    const auto all = connections;
    if (grace.count() <= 0) {
      for (const auto& [key, connection] : all) connection->close_now();
      return;
    }
    for (const auto& [key, connection] : all) connection->finish();
    grace_end.expires_after(grace);
    grace_end.async_wait([this](const error_code& cancelled) {
      if (!cancelled) end_connections(std::chrono::milliseconds(0));
    });
  }

  // Declared in this order so that members that use `io` are destroyed before it. Connections are destroyed with `io`
  // and use `telemetry`.
  std::shared_ptr<serving::Telemetry> telemetry;
  boost::asio::io_context io{1};
  ServerConfig config;
  Routes routes;
  Gate gate;
  std::unique_ptr<TlsContext> tls;
  serving::Listener listener;
  boost::asio::steady_timer grace_end;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  ConnectionContext context;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;  ///< I/O thread
  bool ending = false;                                                       ///< I/O thread
  std::atomic<std::size_t> num_connections{0};
  std::thread thread;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  shutdown(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<Server>> Server::start(ServerConfig config, Routes routes,
                                              std::shared_ptr<serving::Telemetry> telemetry, bool lets_in) {
  if (auto problems = config.validate(); !problems.empty()) return fail(std::move(problems.front()));
  auto state = std::make_unique<State>(std::move(config), std::move(routes), std::move(telemetry));
  if (auto status = state->listen(); !status) return fail(std::move(status.error()));
  state->run(lets_in);
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

void Server::let_in() {
  boost::asio::post(state_->io, [state = state_.get()] { state->let_in(); });
}

std::uint16_t Server::port() const {
  return state_->listener.port();
}

const std::string& Server::address() const {
  return state_->listener.address();
}

bool Server::is_tls() const {
  return state_->tls != nullptr;
}

boost::asio::io_context& Server::io() {
  return state_->io;
}

void Server::begin_drain() {
  boost::asio::post(state_->io, [state = state_.get()] { state->context.draining = true; });
}

void Server::shutdown(std::chrono::milliseconds grace) {
  if (!state_->thread.joinable()) return;
  actors::retry_on_bad_alloc([&] {  // the join below waits for this handler
    boost::asio::post(state_->io, [state = state_.get(), grace] {
      actors::retry_on_bad_alloc([&] { state->end_connections(grace); });
    });
  });
  state_->thread.join();
}

const Routes& Server::routes() const {
  return state_->routes;
}

std::size_t Server::num_connections() const {
  return state_->num_connections;
}

}  // namespace pagoda::http
