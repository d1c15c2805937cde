#pragma once

/// Streams that outlive their connections. They keep the events of requests whose clients may reconnect. Everything
/// runs on the I/O thread of one server.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "io/serving/event_history.hpp"
#include "io/serving/resume_config.hpp"
#include "io/serving/tenant.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// Reader of a stream. It takes events from the history as fast as its client reads.
class StreamReader {
 public:
  /// Called when there are more events, or the stream has ended.
  virtual void on_events() = 0;
  /// Called when another reader has replaced this one, which is detached.
  virtual void on_replaced() = 0;
  /// Returns the number of the event that the reader takes next.
  virtual std::uint64_t next_event() const = 0;

 protected:
  ~StreamReader() = default;
};

/// Owner of a stream, and the client's id of its request.
struct StreamName {
  std::string owner;  ///< Principal::id; empty: the request came without a key
  std::string id;

  /// Returns the id quoted for logs, so that a client's text cannot begin a new log line.
  std::string quoted_id() const;

  auto operator<=>(const StreamName&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.owner, self.id); }
};

StreamName stream_name(const SharedPrincipal& principal, std::string_view id);

class ResumableStreams;

/// One stream. It is live until end(), and is kept for a while afterwards. A stream without a reader is given up after
/// ResumeConfig::resume_window.
class ResumableStream : public std::enable_shared_from_this<ResumableStream> {
 public:
  ResumableStream(ResumableStreams& all, boost::asio::io_context& io, StreamName name);

  // -- For the producer of the events:

  /// Sets callbacks. `cancel` requests the end of the stream; its last events still follow. `give_up` reports that the
  /// stream has no reader any more and will get none. Both callbacks are destroyed at the end of the stream.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }
  void on_give_up(std::function<void()> give_up) { give_up_ = std::move(give_up); }
  void add(std::string event);
  /// Notifies the reader of the added events. Call after each batch of events.
  void notify_reader();
  void end();
  /// Call when the request is admitted: if there are more streams than allowed, drops one that has ended.
  void admitted();
  /// Removes the stream, whose request was refused before it began.
  void withdraw();
  /// Starts the time limit of a stream that has no reader: when it expires, the stream is given up.
  void await_reader();

  // -- For readers:

  /// Makes `reader` the reader of the stream; replaces the previous reader.
  void attach(StreamReader& reader);
  void detach(StreamReader& reader);
  const EventHistory& history() const { return history_; }
  bool has_ended() const { return has_ended_; }
  void cancel();

  const StreamName& name() const { return name_; }

 private:
  friend class ResumableStreams;
  void give_up();
  void drop_down_to(std::size_t num_bytes);

  ResumableStreams* all_;  ///< null once the stream is removed
  StreamName name_;
  EventHistory history_;
  StreamReader* reader_ = nullptr;
  std::uint64_t delivered_ = 0;  ///< number of events that the reader was notified of
  boost::asio::steady_timer window_;
  std::function<void()> cancel_;
  std::function<void()> give_up_;
  bool has_ended_ = false;
  std::uint64_t end_number_ = 0;  ///< position in the order in which streams ended
};

class ResumableStreams {
 public:
  explicit ResumableStreams(const ResumeConfig& config) : config_(config) {}
  ~ResumableStreams() { close(); }
  ResumableStreams(const ResumableStreams&) = delete;
  ResumableStreams& operator=(const ResumableStreams&) = delete;

  const ResumeConfig& config() const { return config_; }

  /// Opens a stream, which has no reader yet. Errors: invalid_request (this server keeps no streams), duplicate_id,
  /// queue_full. `is_recovered`: whether an earlier process admitted the request. If it is false, call admitted() or
  /// withdraw() before the next open(): until then there may be one stream more than allowed.
  Result<std::shared_ptr<ResumableStream>> open(boost::asio::io_context& io, StreamName name,
                                                bool is_recovered = false);
  /// Returns the stream, or null if there is none.
  std::shared_ptr<ResumableStream> find(const StreamName& name) const;

  std::size_t size() const { return streams_.size(); }
  std::size_t bytes() const { return bytes_; }

  /// Gives up all streams.
  void close();

 private:
  friend class ResumableStream;
  void make_room();
  std::size_t share_of(std::size_t num_bytes) const;
  /// Returns the stream that ended first among those that have ended and have no reader; null if there is none.
  ResumableStream* oldest_ended() const;
  bool drop_an_ended();
  void erase(const StreamName& name);

  ResumeConfig config_;
  std::map<StreamName, std::shared_ptr<ResumableStream>> streams_;
  std::size_t bytes_ = 0;
  std::uint64_t num_ended_ = 0;
};

}  // namespace pagoda::serving
