#include "io/device_link/engine_joiner.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "io/device_link/child_process.hpp"
#include "io/device_link/frame_channel.hpp"
#include "io/device_link/messages.hpp"
#include "io/device_link/tls_relay.hpp"
#include "io/serving/listen_address.hpp"

namespace pagoda::device_link {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectTime = std::chrono::seconds(10);
/// Time in which a process that has closed its link ends.
constexpr auto kExitTime = std::chrono::seconds(1);
/// Pause before the next try: begins with kFirstPause and doubles each time up to kLongestPause. A link that lasted
/// kLongLife resets it.
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(5'000);
constexpr auto kLongLife = std::chrono::seconds(10);
constexpr LinkFileKeys kJoinerKeys{"tls_cert", "tls_key", "tls_ca"};

}  // namespace

/// Makes one link after the other, on one thread.
class EngineJoiner::Loop {
 public:
  Loop(JoinConfig config, serving::ListenAddress engine, boost::asio::ssl::context tls)
      : config_(std::move(config)), engine_(std::move(engine)), tls_(std::move(tls)) {}

  void run() {
    signals_.async_wait([this](error_code cancelled, int) {
      if (!cancelled) stop();
    });
    connect();
    io_.run();
    child_.reset();
  }

 private:
  void connect() {
    stream_.emplace(io_, tls_);
    stream_->set_verify_callback(boost::asio::ssl::host_name_verification(engine_.host));
    timer_.expires_after(kConnectTime);
    timer_.async_wait([this](error_code cancelled) {
      if (cancelled) return;
      error_code ignored;
      resolver_.cancel();
      if (stream_) stream_->lowest_layer().close(ignored);
    });
    resolver_.async_resolve(engine_.host, std::to_string(engine_.port),
                            [this](error_code unknown, const tcp::resolver::results_type& found) {
                              if (unknown) return failed("cannot find", unknown);
                              boost::asio::async_connect(
                                  stream_->lowest_layer(), found,
                                  [this](error_code refused, const tcp::endpoint&) { handshake(refused); });
                            });
  }

  void handshake(error_code refused) {
    if (refused) return failed("cannot connect to", refused);
    set_link_options(stream_->next_layer());
    stream_->async_handshake(boost::asio::ssl::stream_base::client, [this](error_code unproved) {
      if (unproved) return failed("cannot verify", unproved);
      timer_.cancel();
      work();
    });
  }

  void work() {
    if (stops_) return;
    auto ends = TlsRelay::create(std::move(*stream_));
    stream_.reset();
    if (!ends) return failed(ends.error().message.c_str(), {});
    const auto ended = std::make_shared<std::promise<PeerEnd>>();
    auto child = ChildProcess::start(
        config_.command, {ends->local.get()},
        {.on_stopped = nullptr, .on_ended = [ended](const PeerEnd& how) { ended->set_value(how); }});
    if (!child) return failed(child.error().message.c_str(), {});
    child_ = std::move(*child);
    began_ = Clock::now();
    spdlog::info("joined the engine at {}: {} runs its steps", config_.engine, child_->name());
    relay_ = std::move(ends->relay);
    const auto on_end = [this](error_code why) {
      relay_.reset();
      child_.reset();
      if (Clock::now() - began_ > kLongLife) pause_ = kFirstPause;
      if (why) return failed("lost", why);
      if (!stops_) spdlog::warn("the worker process has ended");
      pause();
    };
    relay_->start(on_end, [name = child_->name(), end = std::make_shared<std::future<PeerEnd>>(ended->get_future())] {
      return report_of(name, *end);
    });
  }

  /// Returns the message that tells the engine of a crash; empty if the process was killed from outside: the end of the
  /// connection says that it has gone.
  static std::vector<std::byte> report_of(const std::string& name, std::future<PeerEnd>& end) {
    if (end.wait_for(kExitTime) != std::future_status::ready) return {};
    const PeerEnd how = end.get();
    if (how.was_killed) return {};
    return FrameChannel::frame_of(
        FromWorker(actors::DeviceFailed{.error = {ErrorCode::device_failed, name + " " + how.how},
                                        .without_progress = true,
                                        .memory_lost = true,
                                        .process = actors::ProcessEnd::died,
                                        .crashed = true}));
  }

  void failed(const char* what, error_code why) {
    if (!stops_) spdlog::warn("{} the engine at {}{}", what, config_.engine, why ? ": " + why.message() : "");
    pause();
  }

  void pause() {
    stream_.reset();
    if (stops_) return;
    timer_.expires_after(pause_);
    pause_ = std::min<std::chrono::milliseconds>(2 * pause_, kLongestPause);
    timer_.async_wait([this](error_code cancelled) {
      if (!cancelled) connect();
    });
  }

  void stop() {
    stops_ = true;
    timer_.cancel();
    resolver_.cancel();
    error_code ignored;
    if (stream_) stream_->lowest_layer().close(ignored);
    if (relay_) relay_->stop();
  }

  JoinConfig config_;
  serving::ListenAddress engine_;
  boost::asio::ssl::context tls_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_{io_, SIGINT, SIGTERM};
  boost::asio::steady_timer timer_{io_};
  tcp::resolver resolver_{io_};
  std::optional<TlsStream> stream_;  // set until a relay takes the stream
  std::shared_ptr<TlsRelay> relay_;
  std::unique_ptr<ChildProcess> child_;
  std::chrono::milliseconds pause_ = kFirstPause;
  Clock::time_point began_;
  bool stops_ = false;
};

EngineJoiner::EngineJoiner(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
EngineJoiner::~EngineJoiner() = default;

Result<std::unique_ptr<EngineJoiner>> EngineJoiner::create(JoinConfig config) {
  auto engine = serving::parse_listen(config.engine, "join");
  if (!engine) return fail(std::move(engine.error()));
  auto tls = load_link_context(LinkSide::worker, config.files, kJoinerKeys);
  if (!tls) return fail(std::move(tls.error()));
  auto loop = std::make_unique<Loop>(std::move(config), std::move(*engine), std::move(*tls));
  return std::unique_ptr<EngineJoiner>(new EngineJoiner(std::move(loop)));
}

void EngineJoiner::run() {
  loop_->run();
}

}  // namespace pagoda::device_link
