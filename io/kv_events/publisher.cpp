#include "io/kv_events/publisher.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/kv_events/event_payload.hpp"

#if defined(PAGODA_HAS_ZMQ)
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>
#endif

namespace pagoda::kv_events {

#if !defined(PAGODA_HAS_ZMQ)

struct Publisher::State {};

bool Publisher::in_build() {
  return false;
}
Result<std::shared_ptr<Publisher>> Publisher::start(const Config&, std::int32_t) {
  return fail(ErrorCode::unsupported,
              std::string(kKey) + " needs ZeroMQ, which is not in this build: install libzmq3-dev and build again",
              kKey);
}
Publisher::Publisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Publisher::~Publisher() = default;
void Publisher::publish(ReplicaId, memory::KvEventBatch) {}
void Publisher::name_adapter(AdapterId, const std::string&) {}
void Publisher::forget_adapter(AdapterId) {}
void Publisher::stop() {}
Publisher::Counts Publisher::counts(ReplicaId) const {
  return {};
}
void Publisher::write(metrics::PrometheusText&) const {}

#else

namespace {

/// Number of names that are known of adapters that were unloaded; the one that was unloaded first is forgotten first.
/// An adapter has a new id whenever it is loaded.
constexpr std::size_t kMaxUnloadedNames = 4096;
constexpr int kLingerMs = 300;
/// Maximum bytes of a frame of a peer: a subscription, or a request for replay.
constexpr std::int64_t kMaxFrameBytes = 4096;
constexpr std::int64_t kEndOfReplay = -1;
/// Keepalive of connections in seconds, so that a host that has vanished does not hold batches for long.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 10;
constexpr int kKeepaliveCount = 6;

using Number = std::array<unsigned char, 8>;

Number big_endian(std::uint64_t value) {
  Number bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(value >> (56U - 8U * i));
  return bytes;
}

std::uint64_t from_big_endian(std::span<const unsigned char> bytes) {
  std::uint64_t value = 0;
  for (const unsigned char byte : bytes) value = value << 8U | byte;
  return value;
}

/// A message, whose bytes its copies share.
class Message {
 public:
  Message() { zmq_msg_init(&message_); }
  Message(const void* bytes, std::size_t size) {
    zmq_msg_init_size(&message_, size);
    if (size > 0) std::memcpy(zmq_msg_data(&message_), bytes, size);
  }
  explicit Message(std::string_view text) : Message(text.data(), text.size()) {}
  Message(const Message& other) : Message() { zmq_msg_copy(&message_, &other.message_); }
  Message& operator=(const Message& other) {
    zmq_msg_copy(&message_, &other.message_);
    return *this;
  }
  ~Message() { zmq_msg_close(&message_); }

  std::span<const unsigned char> bytes() const {
    return {static_cast<const unsigned char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  zmq_msg_t* get() { return &message_; }

 private:
  mutable zmq_msg_t message_{};
};

class Socket {
 public:
  Socket(void* context, int type) : socket_(zmq_socket(context, type)) {
    set(ZMQ_LINGER, kLingerMs);
    zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &kMaxFrameBytes, sizeof kMaxFrameBytes);
    set(ZMQ_TCP_KEEPALIVE, 1);
    set(ZMQ_TCP_KEEPALIVE_IDLE, kKeepaliveIdle);
    set(ZMQ_TCP_KEEPALIVE_INTVL, kKeepaliveInterval);
    set(ZMQ_TCP_KEEPALIVE_CNT, kKeepaliveCount);
  }
  Socket(Socket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (socket_ != nullptr) zmq_close(socket_);
  }

  void set(int option, int value) { zmq_setsockopt(socket_, option, &value, sizeof value); }
  void* get() const { return socket_; }

  Status open(const char* field, const Endpoint& endpoint, std::int32_t replica) {
    set(ZMQ_IPV6, endpoint.is_version_6 ? 1 : 0);
    const std::string address = endpoint.of_replica(replica);
    const int failed = endpoint.is_bound ? zmq_bind(socket_, address.c_str()) : zmq_connect(socket_, address.c_str());
    if (failed == 0) return {};
    return fail(ErrorCode::io_failed,
                std::string(kKey) + ": cannot " + (endpoint.is_bound ? "bind " : "connect ") + field + " " + address +
                    ": " + zmq_strerror(zmq_errno()),
                kKey);
  }

  /// Sends the parts as one message, without waiting. Returns whether the socket has taken all of them.
  bool send(std::span<const Message> parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Message part = parts[i];
      if (zmq_msg_send(part.get(), socket_, ZMQ_DONTWAIT | (i + 1 < parts.size() ? ZMQ_SNDMORE : 0)) < 0) return false;
    }
    return true;
  }
  /// Returns the parts of the next message; empty if there is none.
  std::vector<Message> receive() {
    std::vector<Message> parts;
    int more = 1;
    while (more != 0) {
      Message part;
      if (zmq_msg_recv(part.get(), socket_, ZMQ_DONTWAIT) < 0) return {};
      more = zmq_msg_more(part.get());
      constexpr std::size_t kMaxParts = 4;
      if (parts.size() < kMaxParts) parts.push_back(part);
    }
    return parts;
  }

 private:
  void* socket_;
};

struct Context {
  Context() : context(zmq_ctx_new()) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { zmq_ctx_term(context); }
  void* context;
};

/// Wakes the thread out of its poll.
struct WakeUp {
  WakeUp() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;
  ~WakeUp() { close(fd); }
  void set() const { eventfd_write(fd, 1); }
  void clear() const {
    eventfd_t ignored = 0;
    eventfd_read(fd, &ignored);
  }
  int fd;
};

struct Waiting {
  ReplicaId replica = 0;
  std::uint64_t number = 0;
  double seconds = 0;
  std::size_t num_bytes = 0;
  memory::KvEventBatch batch;
};

std::size_t bytes_of(const memory::KvEventBatch& batch) {
  std::size_t sum = sizeof(Waiting);
  for (const memory::KvEvent& event : batch.events) {
    sum += sizeof event;
    if (const auto* stored = std::get_if<memory::BlocksStored>(&event)) {
      sum += stored->tokens.size() * sizeof(TokenId) + stored->hashes.size() * sizeof(memory::ReportedHash);
    } else if (const auto* removed = std::get_if<memory::BlocksRemoved>(&event)) {
      sum += removed->hashes.size() * sizeof(memory::ReportedHash);
    }
  }
  return sum;
}

/// The sockets of a replica, and its last batches.
struct Channel {
  struct Sent {
    std::uint64_t number = 0;
    Message payload;
  };
  explicit Channel(void* context) : pub(context, ZMQ_PUB) {}

  Socket pub;
  std::vector<Socket> replay;  ///< none or one
  std::deque<Sent> kept;
  std::size_t kept_bytes = 0;
  std::uint64_t next_number = 0;  ///< guarded by the mutex, as the next
  std::size_t num_waiting = 0;
  std::atomic<std::int64_t> published = 0;
  std::atomic<std::int64_t> dropped = 0;
};

}  // namespace

struct Publisher::State {
  explicit State(const Config& its) : config(its), topic(its.topic) {}

  Status open(std::int32_t num_replicas) {
    for (std::int32_t replica = 0; replica < num_replicas; ++replica) {
      Channel& channel = channels.emplace_back(context.context);
      channel.pub.set(ZMQ_SNDHWM, static_cast<int>(config.hwm));
      if (auto opened = channel.pub.open("endpoint", config.endpoint, replica); !opened) return opened;
      if (config.replay_endpoint.empty()) continue;
      Socket& socket = channel.replay.emplace_back(context.context, ZMQ_ROUTER);
      socket.set(ZMQ_ROUTER_MANDATORY, 1);  // a full queue is an error, and not a silent loss
      socket.set(ZMQ_SNDHWM, static_cast<int>(config.buffer_steps) + 1);
      if (auto opened = socket.open("replay_endpoint", config.replay_endpoint, replica); !opened) return opened;
    }
    return {};
  }

  void run() {
    std::vector<zmq_pollitem_t> items{{nullptr, wake_up.fd, ZMQ_POLLIN, 0}};
    std::vector<Channel*> replays;
    for (Channel& channel : channels) {
      for (const Socket& socket : channel.replay) {
        items.push_back({socket.get(), 0, ZMQ_POLLIN, 0});
        replays.push_back(&channel);
      }
    }
    for (bool goes_on = true; goes_on;) {
      if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0) continue;  // by a signal
      wake_up.clear();
      goes_on = !is_stopping;
      send_waiting();
      for (std::size_t i = 0; i < replays.size(); ++i) {
        if ((items[i + 1].revents & ZMQ_POLLIN) != 0) answer(*replays[i]);
      }
    }
  }

  void send_waiting() {
    for (;;) {
      std::deque<Waiting> taken;
      {
        const std::lock_guard lock(mutex);
        if (queue.empty()) return;
        // A part of the queue, since batches in hand count as waiting no more.
        constexpr std::size_t kMaxTaken = 64;
        while (!queue.empty() && taken.size() < kMaxTaken) {
          taken.push_back(std::move(queue.front()));
          queue.pop_front();
          queued_bytes -= taken.back().num_bytes;
          --channels[static_cast<std::size_t>(taken.back().replica)].num_waiting;
        }
      }
      for (const Waiting& waiting : taken) send(waiting);
    }
  }

  void send(const Waiting& waiting) {
    Channel& channel = channels[static_cast<std::size_t>(waiting.replica)];
    const auto bytes =
        encode(waiting.batch, waiting.seconds, waiting.replica, [this](AdapterId adapter) { return name_of(adapter); });
    const Number number = big_endian(waiting.number);
    const std::array<Message, 3> parts{topic, Message(number.data(), number.size()),
                                       Message(bytes.data(), bytes.size())};
    channel.pub.send(parts);  // a PUB socket never waits: it leaves slow subscribers out
    channel.published.fetch_add(1, std::memory_order_relaxed);
    if (channel.replay.empty()) return;
    channel.kept.push_back({waiting.number, parts[2]});
    channel.kept_bytes += bytes.size();
    while (std::ssize(channel.kept) > config.buffer_steps || channel.kept_bytes > kMaxKeptBytes) {
      channel.kept_bytes -= channel.kept.front().payload.bytes().size();
      channel.kept.pop_front();
    }
  }

  void answer(Channel& channel) {
    Socket& socket = channel.replay.front();
    const std::vector<Message> request = socket.receive();
    if (request.size() != 3 || !request[1].bytes().empty() || request[2].bytes().size() != sizeof(Number)) {
      if (!request.empty()) spdlog::debug("kv events: a replay request of {} parts is ignored", request.size());
      return;
    }
    const std::uint64_t first = from_big_endian(request[2].bytes());
    const Message nothing;
    const auto reply = [&](const Message& its_topic, std::uint64_t number, const Message& payload) {
      const Number bytes = big_endian(number);
      const std::array<Message, 5> parts{request[0], nothing, its_topic, Message(bytes.data(), bytes.size()), payload};
      return socket.send(parts);
    };
    auto sent = std::ranges::lower_bound(channel.kept, first, {}, &Channel::Sent::number);
    for (; sent != channel.kept.end(); ++sent) {
      if (!reply(topic, sent->number, sent->payload)) return;  // the client has gone, or asks faster than it reads
    }
    reply(nothing, static_cast<std::uint64_t>(kEndOfReplay), nothing);
  }

  std::string name_of(AdapterId adapter) {
    const std::lock_guard lock(mutex);
    const auto found = names.find(adapter);
    return found == names.end() ? "adapter-" + std::to_string(adapter) : found->second;
  }

  const Config config;
  const Message topic;
  Context context;  // ends after its sockets
  std::deque<Channel> channels;
  WakeUp wake_up;
  std::atomic<bool> is_stopping = false;
  std::mutex mutex;
  std::deque<Waiting> queue;
  std::size_t queued_bytes = 0;
  std::map<AdapterId, std::string> names;
  std::deque<AdapterId> unloaded;  // adapters whose names are still known
  std::thread thread;
};

bool Publisher::in_build() {
  return true;
}

Result<std::shared_ptr<Publisher>> Publisher::start(const Config& config, std::int32_t num_replicas) {
  auto state = std::make_unique<State>(config);
  if (auto opened = state->open(num_replicas); !opened) return fail(std::move(opened.error()));
  std::shared_ptr<Publisher> publisher(new Publisher(std::move(state)));
  // The sockets belong to the thread from here on.
  publisher->state_->thread = std::thread([its = publisher->state_.get()] { its->run(); });
  return publisher;
}

Publisher::Publisher(std::unique_ptr<State> state) : state_(std::move(state)) {}

Publisher::~Publisher() {
  stop();
}

void Publisher::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_stopping.exchange(true)) return;
  }
  state_->wake_up.set();
  state_->thread.join();
  for (Channel& channel : state_->channels) {
    channel.replay.clear();
    const Socket closed = std::move(channel.pub);
  }
}

void Publisher::publish(ReplicaId replica, memory::KvEventBatch batch) {
  if (batch.events.empty()) return;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  Channel& channel = state_->channels[static_cast<std::size_t>(replica)];
  const std::size_t num_bytes = bytes_of(batch);
  bool is_first_loss = false;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_stopping) return;
    const std::uint64_t number = channel.next_number++;
    if (std::cmp_less(channel.num_waiting, state_->config.max_queue_size) &&
        state_->queued_bytes + num_bytes <= kMaxKeptBytes) {
      ++channel.num_waiting;
      state_->queued_bytes += num_bytes;
      state_->queue.push_back({replica, number, now.count(), num_bytes, std::move(batch)});
    } else {
      is_first_loss = channel.dropped.fetch_add(1, std::memory_order_relaxed) == 0;
    }
  }
  if (is_first_loss) {
    spdlog::warn(
        "kv events: batches are dropped, because {} wait to be sent; pagoda:kv_event_batches_dropped_total "
        "counts them",
        state_->config.max_queue_size);
  }
  state_->wake_up.set();
}

void Publisher::name_adapter(AdapterId adapter, const std::string& name) {
  const std::lock_guard lock(state_->mutex);
  state_->names.insert_or_assign(adapter, name);
}

void Publisher::forget_adapter(AdapterId adapter) {
  const std::lock_guard lock(state_->mutex);
  auto& unloaded = state_->unloaded;
  if (std::ranges::find(unloaded, adapter) != unloaded.end()) return;  // another replica has reported it
  unloaded.push_back(adapter);
  for (; unloaded.size() > kMaxUnloadedNames; unloaded.pop_front()) state_->names.erase(unloaded.front());
}

Publisher::Counts Publisher::counts(ReplicaId replica) const {
  const Channel& channel = state_->channels[static_cast<std::size_t>(replica)];
  return {channel.published.load(std::memory_order_relaxed), channel.dropped.load(std::memory_order_relaxed)};
}

void Publisher::write(metrics::PrometheusText& text) const {
  const auto write_each = [&](std::int64_t Counts::*count) {
    for (std::size_t i = 0; i < state_->channels.size(); ++i) {
      text.sample(counts(static_cast<ReplicaId>(i)).*count, metrics::labels({{"replica", std::to_string(i)}}));
    }
  };
  text.counter("pagoda:kv_event_batches_published_total", "Number of batches of KV events that were sent.");
  write_each(&Counts::published);
  text.counter("pagoda:kv_event_batches_dropped_total",
               "Number of batches of KV events that were not sent, because too many waited.");
  write_each(&Counts::dropped);
}

#endif

}  // namespace pagoda::kv_events
