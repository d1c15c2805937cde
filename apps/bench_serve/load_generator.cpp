#include "apps/bench_serve/load_generator.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <deque>
#include <unordered_map>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "apps/bench_serve/arrivals.hpp"
#include "apps/bench_serve/flight.hpp"

namespace pagoda::bench_serve {
namespace {

using boost::system::error_code;

Clock::duration clock_time(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class LoadGenerator {
 public:
  LoadGenerator(Server& server, const RequestForm& form, const LoadPlan& plan, Workload& workload,
                const LoadProgress& progress)
      : server_(server),
        form_(form),
        plan_(plan),
        workload_(workload),
        progress_(progress),
        arrivals_(plan.request_rate, plan.burstiness, plan.seed),
        random_(plan.seed + 1),
        clients_({1 - plan.slow_fraction - plan.stalled_fraction - plan.abort_fraction, plan.slow_fraction,
                  plan.stalled_fraction, plan.abort_fraction}) {}

  LoadRun run() {
    signals_.async_wait([this](const error_code& error, int) {
      if (!error) interrupt();
    });
    start_ = Clock::now();
    draw_arrival();
    boost::asio::post(io_, [this] { send_due(); });
    show_progress();
    io_.run();
    return std::move(run_);
  }

 private:
  double now_s() const { return seconds_between(start_, Clock::now()); }

  /// Draws the arrival time of the next request of an open loop, or sets has_all_ if there is none.
  void draw_arrival() {
    next_due_s_ = arrivals_.next();
    if (plan_.num_prompts > 0 && num_arrived_ >= plan_.num_prompts) has_all_ = true;
    if (plan_.duration_s > 0 && next_due_s_ >= plan_.duration_s) has_all_ = true;
  }

  /// Sends requests that are due and allowed, and waits for the next.
  void send_due() {
    if (plan_.is_open_loop()) {
      for (; !has_all_ && next_due_s_ <= now_s(); draw_arrival()) {
        ++num_arrived_;
        waiting_.push_back(next_due_s_);
      }
      for (; may_send() && !waiting_.empty(); waiting_.pop_front()) send(waiting_.front());
      if (!has_all_) wait_for_arrival();
    } else {
      for (; !has_all_ && may_send(); has_all_ = has_all_ || is_over()) {
        ++num_arrived_;
        send(now_s());
      }
    }
    end_when_done();
  }

  /// Returns whether a closed loop has sent all its requests.
  bool is_over() const {
    return (plan_.num_prompts > 0 && num_arrived_ >= plan_.num_prompts) ||
           (plan_.duration_s > 0 && now_s() >= plan_.duration_s);
  }

  bool may_send() const {
    return plan_.max_concurrency == 0 || static_cast<std::int64_t>(flights_.size()) < plan_.max_concurrency;
  }

  void wait_for_arrival() {
    arrival_.expires_at(start_ + clock_time(next_due_s_));
    arrival_.async_wait([this](const error_code& error) {
      if (!error) send_due();
    });
  }

  void send(double begin_s) {
    const auto prompt = workload_.next();
    const auto client = static_cast<Client>(clients_(random_));
    std::uniform_int_distribution<std::int64_t> limit(0, std::max<std::int64_t>(prompt.output_len - 1, 0));
    auto flight = std::make_unique<Flight>(connection(), client, limit(random_), start_,
                                           [this](Flight& ended) { on_end(ended); });
    auto& sent = *flight;
    flights_.emplace(&sent, std::move(flight));
    num_stalled_ += client == Client::never_reads ? 1 : 0;
    run_.max_concurrent_requests = std::max(run_.max_concurrent_requests, static_cast<std::int64_t>(flights_.size()));
    const Pace pace{.bytes_per_s = client == Client::reads_slowly ? plan_.slow_bytes_per_s : 0,
                    .never = client == Client::never_reads};
    sent.begin(form_.request(server_.url, prompt), pace, begin_s);
  }

  std::shared_ptr<HttpConnection> connection() {
    if (idle_.empty()) return make_connection(io_, server_);
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  void on_end(Flight& ended) {
    auto& record = ended.record();
    if (ended.connection()->is_reusable()) idle_.push_back(ended.connection());
    num_stalled_ -= record.client == Client::never_reads ? 1 : 0;
    if (record.client != Client::never_reads) run_.duration_s = std::max(run_.duration_s, record.end_s);
    num_tokens_ += record.output_tokens;
    run_.records.push_back(std::move(record));
    // Posted, because the flight and the loop that sends may be on the stack.
    const auto at = flights_.find(&ended);
    boost::asio::post(io_, [this, flight = std::move(at->second)] { send_due(); });
    flights_.erase(at);
  }

  /// Ends the run when only clients that never read are left: these leave too.
  void end_when_done() {
    if (!has_all_ || !waiting_.empty() || static_cast<std::int64_t>(flights_.size()) > num_stalled_) return;
    leave_all();
    signals_.cancel();
    arrival_.cancel();
    redraw_.cancel();
    for (const auto& connection : idle_) connection->close();
    idle_.clear();
  }

  void leave_all() {
    std::vector<Flight*> live;
    for (const auto& [flight, owned] : flights_) live.push_back(flight);
    for (auto* flight : live) flight->disconnect();
  }

  void interrupt() {
    run_.was_interrupted = true;
    has_all_ = true;
    waiting_.clear();
    leave_all();
    end_when_done();
  }

  void show_progress() {
    constexpr auto kEvery = std::chrono::milliseconds(200);
    redraw_.expires_after(kEvery);
    redraw_.async_wait([this](const error_code& error) {
      if (error) return;
      const auto done = static_cast<std::int64_t>(run_.records.size());
      progress_(plan_.num_prompts > 0 ? static_cast<double>(done) / static_cast<double>(plan_.num_prompts)
                                      : now_s() / plan_.duration_s,
                done, num_tokens_);
      show_progress();
    });
  }

  Server& server_;
  const RequestForm& form_;
  const LoadPlan& plan_;
  Workload& workload_;
  const LoadProgress& progress_;
  Arrivals arrivals_;
  std::mt19937_64 random_;
  std::discrete_distribution<int> clients_;  ///< draws values of enum Client

  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_{io_, SIGINT};
  boost::asio::steady_timer arrival_{io_};
  boost::asio::steady_timer redraw_{io_};
  Clock::time_point start_;
  double next_due_s_ = 0;
  bool has_all_ = false;  ///< whether no more requests come
  /// Due times of requests that wait, because the largest number of requests is in flight.
  std::deque<double> waiting_;
  std::vector<std::shared_ptr<HttpConnection>> idle_;
  std::unordered_map<Flight*, std::unique_ptr<Flight>> flights_;
  std::int64_t num_arrived_ = 0;
  std::int64_t num_stalled_ = 0;
  std::int64_t num_tokens_ = 0;
  LoadRun run_;
};

/// Keeps the answer to a GET.
class FetchSink final : public ReplySink {
 public:
  void on_sent() override {}
  void on_head(const ReplyHead& head) override { status = head.status; }
  void on_body(std::string_view bytes) override { body += bytes; }
  void on_end(const std::string& its_error) override { error = its_error; }

  int status = 0;
  std::string body;
  std::string error;
};

}  // namespace

std::string RequestForm::request(const BaseUrl& url, const Prompt& prompt) const {
  auto body = fields;
  const auto content = std::visit([](const auto& value) { return nlohmann::ordered_json(value); }, prompt.content);
  if (type == EndpointType::chat) {
    body["messages"] = {{{"role", "user"}, {"content", content}}};
  } else {
    body["prompt"] = content;
  }
  body["max_tokens"] = prompt.output_len;
  const auto text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "POST " + url.path + route + " HTTP/1.1\r\nHost: " + url.authority() +
         "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n" + headers +
         "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

LoadRun run_load(Server& server, const RequestForm& form, const LoadPlan& plan, Workload& workload,
                 const LoadProgress& progress) {
  return LoadGenerator(server, form, plan, workload, progress).run();
}

Result<std::string> fetch(Server& server, const std::string& route, const std::string& headers) {
  constexpr int kSuccess = 200;
  boost::asio::io_context io{1};
  FetchSink sink;
  const auto connection = make_connection(io, server);
  connection->exchange(
      "GET " + server.url.path + route + " HTTP/1.1\r\nHost: " + server.url.authority() + "\r\n" + headers + "\r\n", {},
      sink);
  io.run();
  connection->close();
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::io_failed, "GET " + route + " of " + server.url.authority() + ": " + why, "base_url");
  };
  if (!sink.error.empty()) return refuse(sink.error);
  if (sink.status != kSuccess) return refuse(std::to_string(sink.status) + ": " + error_message(sink.body));
  return sink.body;
}

}  // namespace pagoda::bench_serve
