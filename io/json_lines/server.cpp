#include "io/json_lines/server.hpp"

#include <atomic>
#include <thread>
#include <unordered_map>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "engine/routing/queue_full.hpp"
#include "io/json_lines/connection.hpp"

namespace pagoda::json_lines {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadChunkBytes = 64 << 10;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after a failed accept, as when files run out

/// Small lines go out at once, and a client whose machine has vanished is noticed within about a minute.
void set_options(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int option, int value) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  socket.non_blocking(true, ignored);
}

}  // namespace

class Server::State {
 public:
  State(caf::actor_system& system, actors::RequestRouterActor router, ServerConfig server_config)
      : config(std::move(server_config)),
        acceptor(io),
        accept_pause(io),
        work(io.get_executor()),
        context{io, system, std::move(router), config, std::vector<char>(kReadChunkBytes)} {}

  Status listen() {
    const auto refuse = [&](const error_code& error) {
      return fail(ErrorCode::io_failed, "cannot listen on " + config.listen + ": " + error.message(), "listen");
    };
    const auto wanted = parse_listen(config.listen);
    if (!wanted) return fail(wanted.error());
    error_code error;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(wanted->host, std::to_string(wanted->port), tcp::resolver::passive, error);
    if (error) return refuse(error);
    const tcp::endpoint endpoint = *found.begin();
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
    if (error) return refuse(error);
    port = acceptor.local_endpoint().port();
    const bool is_v6 = wanted->host.find(':') != std::string::npos;
    address = (is_v6 ? "[" + wanted->host + "]" : wanted->host) + ":" + std::to_string(port);
    if (!endpoint.address().is_loopback() && config.api_keys.empty()) {
      spdlog::warn("listening on {}, beyond this machine, without API keys: anybody who reaches it can use it",
                   address);
    }
    return {};
  }

  void run() {
    accept();
    engine_watch = std::make_shared<Outbox>(io, [this](std::vector<BridgeEvent>&) {
      const auto all = connections;  // one that has nothing left to send goes from the table
      for (const auto& [key, connection] : all) connection->on_engine_gone();
    });
    actors::when_ended(context.router, [watch = engine_watch] { watch->push(RouterGone{}); });
    thread = std::thread([this] { io.run(); });
  }

  void accept() {
    acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (error) {
        spdlog::warn("cannot accept a connection: {}", error.message());
        accept_pause.expires_after(kAcceptPause);
        accept_pause.async_wait([this](const error_code& cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      welcome(std::move(socket));
      accept();
    });
  }

  void welcome(tcp::socket socket) {
    set_options(socket);
    if (connections.size() >= static_cast<std::size_t>(config.max_connections)) {
      std::string line;
      append_error(line, {}, {WireCode::queue_full, "too many connections", {}, routing::kRetryAfterMs});
      error_code ignored;  // a fresh socket's send buffer takes a short line at once
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
    connection->start();
  }

  void stop_accepting() {
    error_code ignored;
    acceptor.close(ignored);
    accept_pause.cancel();
  }

  void end_connections(std::chrono::milliseconds grace) {
    stop_accepting();
    engine_watch->close();
    ending = true;
    if (connections.empty()) return io.stop();
    const auto all = connections;
    if (grace.count() <= 0) {
      for (const auto& [key, connection] : all) connection->close_now();
      return;
    }
    for (const auto& [key, connection] : all) connection->flush_and_close();
    accept_pause.expires_after(grace);
    accept_pause.async_wait([this](const error_code& cancelled) {
      if (!cancelled) end_connections(std::chrono::milliseconds(0));
    });
  }

  // Declared in this order so that what hangs on `io` goes before it.
  boost::asio::io_context io{1};
  ServerConfig config;
  tcp::acceptor acceptor;
  boost::asio::steady_timer accept_pause;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  ConnectionContext context;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;  ///< I/O thread
  std::shared_ptr<Outbox> engine_watch;
  bool ending = false;  ///< I/O thread
  std::atomic<std::size_t> num_connections{0};
  std::uint16_t port = 0;
  std::string address;
  std::thread thread;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  shutdown(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<Server>> Server::start(caf::actor_system& system, actors::RequestRouterActor router,
                                              ServerConfig config) {
  if (auto problems = config.validate(); !problems.empty()) return fail(std::move(problems.front()));
  auto state = std::make_unique<State>(system, std::move(router), std::move(config));
  if (auto status = state->listen(); !status) return fail(std::move(status.error()));
  state->run();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

std::uint16_t Server::port() const {
  return state_->port;
}

const std::string& Server::address() const {
  return state_->address;
}

void Server::stop_accepting() {
  boost::asio::post(state_->io, [state = state_.get()] { state->stop_accepting(); });
}

void Server::shutdown(std::chrono::milliseconds grace) {
  if (!state_->thread.joinable()) return;
  boost::asio::post(state_->io, [state = state_.get(), grace] { state->end_connections(grace); });
  state_->thread.join();
}

std::size_t Server::num_connections() const {
  return state_->num_connections;
}

}  // namespace pagoda::json_lines
