#include "io/device_link/join_listener.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "io/serving/run_io.hpp"

namespace pagoda::device_link {
namespace {

using boost::system::error_code;

constexpr auto kHandshakeTime = std::chrono::seconds(10);
constexpr LinkFileKeys kListenerKeys{"worker_tls_cert", "worker_tls_key", "worker_tls_ca"};

std::string text_of(const boost::asio::ip::tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port());
}

}  // namespace

struct JoinListener::Life {
  std::function<void(const PeerEnd&)> on_ended;  // set under the mutex when the engine takes the worker out of waiting_
  std::promise<void> reported_end;               // set after the call of on_ended

  void end() {
    if (on_ended) on_ended({"has disconnected", true});
    reported_end.set_value();
  }
};

struct JoinListener::Handshake {
  Handshake(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& tls, std::string from)
      : stream(std::move(socket), tls), deadline(stream.get_executor()), address(std::move(from)) {}

  void give_up() {
    error_code ignored;
    stream.lowest_layer().close(ignored);
  }

  TlsStream stream;
  boost::asio::steady_timer deadline;
  std::string address;
};

/// A joined worker that the engine has taken.
class JoinListener::JoinedWorker final : public WorkerPeer {
 public:
  JoinedWorker(std::string name, std::shared_ptr<TlsRelay> relay, std::shared_ptr<Life> life)
      : name_(std::move(name)), relay_(std::move(relay)), life_(std::move(life)) {}

  ~JoinedWorker() override {
    kill();
    life_->reported_end.get_future().wait();
  }

  std::string name() const override { return name_; }
  void kill() override { relay_->stop(); }

 private:
  std::string name_;
  std::shared_ptr<TlsRelay> relay_;
  std::shared_ptr<Life> life_;
};

Result<std::shared_ptr<JoinListener>> JoinListener::create(const std::string& listen, const LinkFiles& files) {
  auto tls = load_link_context(LinkSide::engine, files, kListenerKeys);
  if (!tls) return fail(std::move(tls.error()));
  std::shared_ptr<JoinListener> self(new JoinListener(std::move(*tls)));
  if (Status opened = self->listener_.open(listen, "worker_listen"); !opened) return fail(std::move(opened.error()));
  self->listener_.accept([me = self.get()](boost::asio::ip::tcp::socket socket) { me->handshake(std::move(socket)); });
  self->thread_ = std::thread([me = self.get()] { serving::run_io(me->io_); });
  return self;
}

JoinListener::~JoinListener() {
  boost::asio::post(io_, [this] {
    listener_.close();
    for (const auto& handshake : handshakes_) handshake->give_up();
    const std::lock_guard lock(mutex_);
    for (const Waiting& waiting : waiting_) waiting.relay->stop();
  });
  if (thread_.joinable()) thread_.join();
}

void JoinListener::handshake(boost::asio::ip::tcp::socket socket) {
  error_code gone;
  const auto from = socket.remote_endpoint(gone);
  if (gone) return;
  set_link_options(socket);
  if (handshakes_.size() >= kMaxHandshakes) handshakes_.front()->give_up();
  const auto place =
      handshakes_.insert(handshakes_.end(), std::make_shared<Handshake>(std::move(socket), tls_, text_of(from)));
  const std::shared_ptr<Handshake> handshake = *place;
  handshake->deadline.expires_after(kHandshakeTime);
  handshake->deadline.async_wait([handshake](error_code cancelled) {
    if (!cancelled) handshake->give_up();
  });
  handshake->stream.async_handshake(boost::asio::ssl::stream_base::server,
                                    [this, place, handshake](error_code refused) {
                                      handshake->deadline.cancel();
                                      handshakes_.erase(place);
                                      if (!refused) return has_joined(std::move(handshake->stream), handshake->address);
                                      spdlog::debug("{} is not a worker: {}", handshake->address, refused.message());
                                    });
}

void JoinListener::has_joined(TlsStream stream, const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    spdlog::warn("{} workers are waiting already: the worker at {} is refused", waiting_.size(), address);
    return;
  }
  auto ends = TlsRelay::create(std::move(stream));
  if (!ends) return spdlog::warn("the worker at {} is refused: {}", address, ends.error().message);
  const auto life = std::make_shared<Life>();
  ends->relay->start([this, life](error_code why) { has_left(*life, why); });
  spdlog::info("a worker at {} has joined", address);
  waiting_.push_back({std::move(ends->relay), std::move(ends->local), "the worker at " + address, life});
  has_changed_.notify_one();
}

void JoinListener::has_left(Life& life, error_code why) {
  {
    const std::lock_guard lock(mutex_);
    const auto waiting = std::ranges::find(waiting_, &life, [](const Waiting& each) { return each.life.get(); });
    if (waiting != waiting_.end()) {
      spdlog::info("{} has left{}", waiting->name, why ? ": " + why.message() : "");
      waiting_.erase(waiting);
      return;
    }
  }
  life.end();
}

Result<JoinListener::Joined> JoinListener::wait_for_worker(WorkerPeer::Events events, const std::stop_token& stop) {
  Waiting taken;
  {
    std::unique_lock lock(mutex_);
    if (!has_changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      return fail(ErrorCode::shutting_down, "the engine is shutting down");
    }
    taken = std::move(waiting_.front());
    waiting_.pop_front();
    taken.life->on_ended = std::move(events.on_ended);
  }
  auto peer = std::make_unique<JoinedWorker>(std::move(taken.name), std::move(taken.relay), std::move(taken.life));
  return Joined{std::move(taken.link), std::move(peer)};
}

std::size_t JoinListener::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace pagoda::device_link
