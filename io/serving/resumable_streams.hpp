#pragma once

/// Streams that outlive their connections: the events of requests whose clients may come back for them. Everything runs
/// on the I/O thread of one server.

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

/// Who reads a stream. It reads from the history as fast as its client does.
class StreamReader {
 public:
  /// There are more events, or the stream has ended.
  virtual void on_events() = 0;
  /// Another has come to read in its place; it is not a reader any more.
  virtual void on_replaced() = 0;
  /// The number of the event that it is to take next.
  virtual std::uint64_t next_event() const = 0;

 protected:
  ~StreamReader() = default;
};

/// Whose a stream is, and what its client calls its request.
struct StreamName {
  std::string owner;  ///< Principal::id; empty: of nobody's key
  std::string id;

  /// For logs: no text of a client makes a line of its own.
  std::string quoted_id() const;

  auto operator<=>(const StreamName&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.owner, self.id); }
};

StreamName stream_name(const SharedPrincipal& principal, std::string_view id);

class ResumableStreams;

/// One of them: live until it has `ended`, then kept for a while. Without a reader for the window it is given up.
class ResumableStream : public std::enable_shared_from_this<ResumableStream> {
 public:
  ResumableStream(ResumableStreams& all, boost::asio::io_context& io, StreamName name);

  // -- who makes the events

  /// `cancel` asks for its end, whose events are then to come; `give_up`: nobody will read it, nor hear of its end.
  /// Both are dropped, with all that they hold, at its end.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }
  void on_give_up(std::function<void()> give_up) { give_up_ = std::move(give_up); }
  void add(std::string event);
  /// Readers hear of what was added. Behind each batch of events.
  void tell();
  void end();
  /// Its request is: now others may lose their places to it.
  void admitted();
  /// It has never begun: there is nothing to come back for.
  void withdraw();
  /// Nobody reads it yet, nor waits to: its time without a reader begins.
  void await_reader();

  // -- who reads them

  /// Takes the place of the reader before.
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

  ResumableStreams* all_;  ///< null once it is not one of them any more
  StreamName name_;
  EventHistory history_;
  StreamReader* reader_ = nullptr;
  std::uint64_t delivered_ = 0;  ///< events that its reader has heard of
  boost::asio::steady_timer window_;
  std::function<void()> cancel_;
  std::function<void()> give_up_;
  bool has_ended_ = false;
  std::uint64_t end_number_ = 0;  ///< among those of all streams
};

class ResumableStreams {
 public:
  explicit ResumableStreams(const ResumeConfig& config) : config_(config) {}
  ~ResumableStreams() { close(); }
  ResumableStreams(const ResumableStreams&) = delete;
  ResumableStreams& operator=(const ResumableStreams&) = delete;

  const ResumeConfig& config() const { return config_; }

  /// A new stream, which has no reader yet. Errors: invalid_request (none are kept here), duplicate_id, queue_full.
  /// `is_recovered`: it was admitted before. Of another, `admitted` or `withdraw` comes before the next one is
  /// opened: where all places are taken, it has one too many until then.
  Result<std::shared_ptr<ResumableStream>> open(boost::asio::io_context& io, StreamName name,
                                                bool is_recovered = false);
  /// Null: there is none such.
  std::shared_ptr<ResumableStream> find(const StreamName& name) const;

  std::size_t size() const { return streams_.size(); }
  std::size_t bytes() const { return bytes_; }

  /// Gives all of them up.
  void close();

 private:
  friend class ResumableStream;
  void make_room();
  std::size_t share_of(std::size_t num_bytes) const;
  /// That has ended, and that nobody reads: the first that did. Null: there is none such.
  ResumableStream* oldest_ended() const;
  bool drop_an_ended();
  void erase(const StreamName& name);

  ResumeConfig config_;
  std::map<StreamName, std::shared_ptr<ResumableStream>> streams_;
  std::size_t bytes_ = 0;
  std::uint64_t num_ended_ = 0;
};

}  // namespace pagoda::serving
