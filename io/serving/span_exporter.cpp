#include "io/serving/span_exporter.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <spdlog/spdlog.h>

#include "io/metrics/prometheus_text.hpp"
#include "io/serving/listen_address.hpp"

namespace pagoda::serving {
namespace {

namespace beast = boost::beast;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kGatherTime = std::chrono::seconds(1);  // longest time that a span waits for others
constexpr auto kPostTime = std::chrono::seconds(2);
constexpr std::string_view kDefaultPort = "4318";
constexpr std::uint64_t kMaxAnswerBytes = 1 << 20;

/// One POST request, from resolving the name to the end of the answer.
class Post : public std::enable_shared_from_this<Post> {
 public:
  Post(boost::asio::io_context& io, const TracesEndpoint& endpoint, std::string body)
      : endpoint_(endpoint), resolver_(io), stream_(io) {
    request_.method(beast::http::verb::post);
    request_.target(endpoint.target);
    request_.set(beast::http::field::host, endpoint.host + ":" + endpoint.port);
    request_.set(beast::http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.body() = std::move(body);
    request_.prepare_payload();
    answer_.body_limit(kMaxAnswerBytes);
  }

  void start() {
    resolver_.async_resolve(endpoint_.host, endpoint_.port,
                            [self = shared_from_this()](const error_code& error, const auto& found) {
                              if (error) return self->failed(error);
                              self->connect(found);
                            });
  }

  /// Returns the problem; empty once the request has succeeded.
  const std::string& problem() const { return problem_; }

 private:
  void connect(const tcp::resolver::results_type& found) {
    stream_.async_connect(found, [self = shared_from_this()](const error_code& error, const auto&) {
      if (error) return self->failed(error);
      self->send();
    });
  }
  void send() {
    beast::http::async_write(stream_, request_, [self = shared_from_this()](const error_code& error, std::size_t) {
      if (error) return self->failed(error);
      self->receive();
    });
  }
  void receive() {
    beast::http::async_read(stream_, buffer_, answer_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (error) return self->failed(error);
                              const auto status = self->answer_.get().result_int();
                              self->problem_ = status / 100 == 2 ? "" : "it answers " + std::to_string(status);
                            });
  }
  void failed(const error_code& error) { problem_ = error.message(); }

  const TracesEndpoint& endpoint_;
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::http::request<beast::http::string_body> request_;
  beast::flat_buffer buffer_;
  beast::http::response_parser<beast::http::string_body> answer_;
  std::string problem_ = "it does not answer";
};

}  // namespace

Result<TracesEndpoint> TracesEndpoint::parse(std::string_view url) {
  constexpr const char* kKey = "otlp_traces_endpoint";
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    return fail(ErrorCode::bad_config,
                std::string(kKey) +
                    " must be an address such as http://127.0.0.1:4318/v1/traces (OTLP over HTTP, without TLS), "
                    "not \"" +
                    std::string(url) + "\"",
                kKey);
  };
  if (!url.starts_with(kScheme) || url.find_first_of(" \t\r\n#@") != std::string_view::npos) return refuse();
  auto place = url.substr(kScheme.size());
  const auto path = std::min(place.find('/'), place.size());
  TracesEndpoint endpoint{.host = {}, .port = {}, .target = std::string(place.substr(path))};
  if (endpoint.target.empty()) endpoint.target = "/v1/traces";
  std::string authority(place.substr(0, path));
  if (authority.empty()) return refuse();
  const bool has_port = authority.rfind(':') != std::string::npos && authority.back() != ']';
  if (!has_port) authority += ":" + std::string(kDefaultPort);
  const auto address = parse_listen(authority, kKey);
  if (!address || address->port == 0) return refuse();
  endpoint.host = address->host;
  endpoint.port = std::to_string(address->port);
  return endpoint;
}

class SpanExporter::State {
 public:
  explicit State(TracesEndpoint where) : endpoint(std::move(where)), thread([this] { run(); }) {}

  ~State() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_one();
    thread.join();
  }

  void add(const RequestRecord& record) {
    {
      const std::lock_guard lock(mutex);
      if (waiting.size() >= kMaxWaiting) {
        ++num_dropped;
        return;
      }
      waiting.push_back(record);
      if (waiting.size() != 1 && waiting.size() != kBatch) return;
    }
    changed.notify_one();
  }

  /// Returns the next batch; empty at the end.
  std::vector<RequestRecord> next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return ending || !waiting.empty(); });
    changed.wait_for(lock, kGatherTime, [this] { return ending || waiting.size() >= kBatch; });
    const auto count = std::min(waiting.size(), kBatch);
    const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<RequestRecord> batch(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
    waiting.erase(waiting.begin(), end);
    return batch;
  }

  /// Exports until the end. A batch for which there is no memory is dropped.
  void run() {
    for (;;) {
      try {
        return export_batches();
      } catch (const std::exception& error) {
        spdlog::warn("spans are dropped: {}", error.what());
      }
    }
  }

  void export_batches() {
    for (auto batch = next(); !batch.empty(); batch = next()) {
      boost::asio::io_context io{1};
      const auto post = std::make_shared<Post>(io, endpoint, otlp_traces(batch));
      post->start();
      io.run_for(kPostTime);
      log_change(post->problem());
      (post->problem().empty() ? num_exported : num_dropped) += static_cast<std::int64_t>(batch.size());
      const std::lock_guard lock(mutex);
      if (!ending || post->problem().empty()) continue;
      // The next batch would fail too, and the destructor waits for this thread.
      num_dropped += static_cast<std::int64_t>(waiting.size());
      waiting.clear();
    }
  }

  /// Logs when the export begins to fail, and when it works again.
  void log_change(const std::string& problem) {
    if (!problem.empty() && !is_failing) {
      spdlog::warn("spans are dropped, because exporting them to the collector at {}:{} fails: {}", endpoint.host,
                   endpoint.port, problem);
    } else if (problem.empty() && is_failing) {
      spdlog::info("the collector at {}:{} accepts spans again", endpoint.host, endpoint.port);
    }
    is_failing = !problem.empty();
  }

  const TracesEndpoint endpoint;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<RequestRecord> waiting;  ///< oldest first
  bool ending = false;
  std::atomic<std::int64_t> num_exported = 0;
  std::atomic<std::int64_t> num_dropped = 0;
  bool is_failing = false;  ///< used by `thread` only
  std::thread thread;       ///< declared last, because it uses the other members
};

SpanExporter::SpanExporter(TracesEndpoint endpoint) : state_(std::make_unique<State>(std::move(endpoint))) {}
SpanExporter::~SpanExporter() = default;

void SpanExporter::on_end(const RequestRecord& record) {
  if (record.generation && (!record.trace || record.trace->sampled)) state_->add(record);
}

void SpanExporter::write(metrics::PrometheusText& text) const {
  text.counter("pagoda:spans_exported_total", "Spans that the collector has taken.");
  text.sample(state_->num_exported.load());
  text.counter("pagoda:spans_dropped_total", "Spans that it has not taken, or that waited too long.");
  text.sample(state_->num_dropped.load());
}

}  // namespace pagoda::serving
