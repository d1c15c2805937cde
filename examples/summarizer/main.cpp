// A small service with Pagoda inside: POST a text to /summarize, and its summary comes back as JSON. The engine and the
// service's own actor (summarizer.cpp) share one actor system. Boost.Beast serves HTTP.
//   summarizer MODEL_DIR [PORT]
//   curl --data-binary @README.md http://127.0.0.1:8090/summarize

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "examples/summarizer/summarizer.hpp"
#include "io/model_files/model_files.hpp"

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using nlohmann::json;

constexpr std::size_t kThreads = 8;  // number of texts that are summarised at a time; more texts wait
constexpr std::uint64_t kMaxBodyBytes = 256 << 10;
constexpr auto kTimeout = std::chrono::seconds(10);

using Answer = std::pair<http::status, json>;

/// Asks the summarizer and waits, on a thread that may block.
Answer summarize(caf::actor_system& system, const summarizer::SummarizerActor& actor, std::string text) {
  caf::scoped_actor self{system};
  Answer answer{http::status::service_unavailable, {{"error", "the service ends"}}};
  pagoda::actors::ask(self, actor, summarizer::Summarize{std::move(text)}, [&](const summarizer::Summary& told) {
    if (told.text) {
      answer = {http::status::ok, {{"summary", *told.text}}};
    } else {
      const bool is_theirs = told.text.error().code == pagoda::ErrorCode::invalid_request;
      answer = {is_theirs ? http::status::bad_request : http::status::service_unavailable,
                {{"error", told.text.error().message}}};
    }
  });
  return answer;
}

Answer answer(caf::actor_system& system, const summarizer::SummarizerActor& actor,
              http::request<http::string_body>& request) {
  if (request.target() == "/health") return {http::status::ok, {{"status", "ok"}}};
  if (request.target() != "/summarize") return {http::status::not_found, {{"error", "POST /summarize"}}};
  if (request.method() != http::verb::post) return {http::status::method_not_allowed, {{"error", "POST a text"}}};
  return summarize(system, actor, std::move(request.body()));
}

/// One request of one client, which has kTimeout to send it, and kTimeout to read the answer. One thread, which runs
/// the io_context, serves all sockets. The other threads do the work that takes time.
class Conversation : public std::enable_shared_from_this<Conversation> {
 public:
  Conversation(tcp::socket socket, asio::thread_pool& threads, caf::actor_system& system,
               const summarizer::SummarizerActor& actor)
      : stream_(std::move(socket)), threads_(threads), system_(system), actor_(actor) {
    parser_.body_limit(kMaxBodyBytes);
  }

  void start() {
    stream_.expires_after(kTimeout);
    http::async_read(stream_, buffer_, parser_, [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (error == http::error::body_limit) return self->write({http::status::payload_too_large, {}});
      if (!error) self->think();  // otherwise the client is slow, has gone, or does not speak HTTP
    });
  }

 private:
  void think() {
    stream_.expires_never();
    asio::post(threads_, [self = shared_from_this(), io_stays = asio::make_work_guard(stream_.get_executor())] {
      auto said = answer(self->system_, self->actor_, self->parser_.get());
      asio::post(self->stream_.get_executor(),
                 [self, said = std::move(said)]() mutable { self->write(std::move(said)); });
    });
  }

  void write(const Answer& said) {
    response_.result(said.first);
    response_.body() = said.second.dump(-1, ' ', false, json::error_handler_t::replace);
    response_.set(http::field::content_type, "application/json");
    response_.keep_alive(false);
    response_.prepare_payload();
    stream_.expires_after(kTimeout);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, std::size_t) {
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  asio::thread_pool& threads_;
  caf::actor_system& system_;
  const summarizer::SummarizerActor& actor_;
  beast::flat_buffer buffer_;
  http::request_parser<http::string_body> parser_;
  http::response<http::string_body> response_;
};

int run(const std::string& model, unsigned short port) {
  pagoda::init_actor_types();  // once, before the first actor system
  summarizer::init_message_types();
  caf::actor_system_config system_config;
  pagoda::actors::configure_pool(system_config, 2);
  caf::actor_system system(system_config);

  pagoda::EngineConfig config;
  config.model = model;
  config.touch_memory = false;
  const auto engine = pagoda::spawn_engine(system, config);
  if (!engine) {
    std::fprintf(stderr, "summarizer: %s\n", engine.error().message.c_str());
    return EXIT_FAILURE;
  }
  const auto chat = pagoda::io::load_chat_prompts(config);
  const auto actor = summarizer::spawn_summarizer(system, *engine, chat.value_or(nullptr), {});

  asio::io_context io;
  asio::thread_pool threads(kThreads);
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), port});
  std::printf("summarizer on http://127.0.0.1:%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  asio::signal_set signals(io, SIGINT, SIGTERM);
  // Pending requests still get their answers, then run() returns.
  signals.async_wait([&](auto, int) { acceptor.close(); });
  const std::function<void()> accept = [&] {
    acceptor.async_accept([&](auto error, tcp::socket socket) {
      if (!error) {
        std::make_shared<Conversation>(std::move(socket), threads, system, actor)->start();
      }
      if (acceptor.is_open()) accept();
    });
  };
  accept();
  io.run();

  // End the actor first, then the engine, which ends with its supervisor.
  threads.join();
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  pagoda::end_engine(*engine);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: summarizer MODEL_DIR [PORT]\n");
    return 2;
  }
  try {
    constexpr unsigned short kPort = 8090;
    return run(argv[1], argc > 2 ? static_cast<unsigned short>(std::atoi(argv[2])) : kPort);
  } catch (const std::exception& error) {  // an address in use, for example
    std::fprintf(stderr, "summarizer: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
