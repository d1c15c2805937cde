#include "io/http/stream_follower.hpp"

#include <string>
#include <utility>

namespace pagoda::http {
namespace {

constexpr std::size_t kMaxUnsentEventBytes = 64 << 10;  // above it events wait in the stream's history

/// Answers an exchange with the events of a stream. The exchange's on_closed holds the object, and the object holds the
/// exchange, until the answer is complete or the client has disconnected.
class StreamFollower final : public serving::StreamReader, public std::enable_shared_from_this<StreamFollower> {
 public:
  StreamFollower(std::shared_ptr<Exchange> exchange, std::shared_ptr<serving::ResumableStream> stream,
                 std::uint64_t from)
      : exchange_(std::move(exchange)), stream_(std::move(stream)), next_(from) {}
  ~StreamFollower() { stream_->detach(*this); }

  void start() {
    exchange_->on_closed([self = shared_from_this()] { self->stream_->detach(*self); });
    exchange_->on_drained([this] { on_events(); });
    exchange_->begin_stream(200, "text/event-stream", {{"cache-control", "no-cache"}});
    stream_->attach(*this);
    on_events();
  }

  void on_events() override {
    const auto self = shared_from_this();  // the end of the answer releases this object
    const auto& history = stream_->history();
    if (next_ < history.first())
      return exchange_->cut_off(
          "the client reads too slowly: the next events are no longer kept (resume_buffer_mib limits how much is "
          "kept)");
    std::string out;
    while (next_ < history.next() && exchange_->unsent_bytes() + out.size() < kMaxUnsentEventBytes) {
      out += history.at(next_++);
    }
    exchange_->write(out);
    if (!stream_->has_ended() || next_ < history.next()) return;
    stream_->detach(*this);
    exchange_->end_stream();
  }

  void on_replaced() override {
    const auto self = shared_from_this();
    exchange_->drop();
  }

  std::uint64_t next_event() const override { return next_; }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<serving::ResumableStream> stream_;
  std::uint64_t next_;  ///< number of the next event to send
};

}  // namespace

void follow_stream(std::shared_ptr<Exchange> exchange, std::shared_ptr<serving::ResumableStream> stream,
                   std::uint64_t from) {
  if (!exchange->is_open()) return;
  std::make_shared<StreamFollower>(std::move(exchange), std::move(stream), from)->start();
}

}  // namespace pagoda::http
