#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "io/device_link/link_tls.hpp"
#include "io/device_link/tls_relay.hpp"
#include "io/device_link/worker_peer.hpp"
#include "io/serving/listener.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// Accepts workers of other hosts for an engine (engine_joiner.hpp is their side). The handshake drops clients without
/// a certificate of the operator's CA. A worker with a certificate waits until the engine takes it, in place of
/// starting a process, or until it leaves. The listener has a thread of its own.
class JoinListener {
 public:
  /// Maximum numbers at a time. A further handshake ends the oldest handshake; a further worker is disconnected.
  static constexpr std::size_t kMaxHandshakes = 64;
  static constexpr std::size_t kMaxWaiting = 16;

  /// `listen`: HOST:PORT. Errors, with the param worker_listen, worker_tls_cert, worker_tls_key or worker_tls_ca:
  /// bad_config, io_failed.
  static Result<std::shared_ptr<JoinListener>> create(const std::string& listen, const LinkFiles& files);
  /// Destroy all workers that wait_for_worker() returned before the listener.
  ~JoinListener();
  JoinListener(const JoinListener&) = delete;
  JoinListener& operator=(const JoinListener&) = delete;

  std::uint16_t port() const { return listener_.port(); }
  /// Returns HOST:PORT as bound, with the real port.
  const std::string& address() const { return listener_.address(); }

  struct Joined {
    Descriptor link;  ///< link to the worker; used like the link to a process of this host
    std::unique_ptr<WorkerPeer> peer;
  };
  /// Returns the worker that has waited longest; blocks until there is one. Errors: shutting_down (stop was requested).
  Result<Joined> wait_for_worker(WorkerPeer::Events events, const std::stop_token& stop);
  std::size_t num_waiting() const;

 private:
  class JoinedWorker;
  struct Handshake;
  /// State of a worker that has joined; lives as long as its relay.
  struct Life;
  struct Waiting {
    std::shared_ptr<TlsRelay> relay;
    Descriptor link;
    std::string name;
    std::shared_ptr<Life> life;
  };

  explicit JoinListener(boost::asio::ssl::context tls) : tls_(std::move(tls)), listener_(io_) {}
  void handshake(boost::asio::ip::tcp::socket socket);
  void has_joined(TlsStream stream, const std::string& address);
  void has_left(Life& life, boost::system::error_code why);

  boost::asio::io_context io_{1};
  boost::asio::ssl::context tls_;
  serving::Listener listener_;
  std::list<std::shared_ptr<Handshake>> handshakes_;
  mutable std::mutex mutex_;  // guards the fields below, but not thread_
  std::condition_variable_any has_changed_;
  std::deque<Waiting> waiting_;
  std::thread thread_;
};

}  // namespace pagoda::device_link
