#pragma once

/// Between a socket and the engine: one bridge actor per connection. It is the sink of the connection's requests and
/// sends them to the request router, so their order is kept and their fate is tied to it: when it dies, the router
/// aborts them.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "actors/interfaces.hpp"
#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {

/// Connection -> bridge: carry out one message of the client. `tag` names the request of a generate or cancel.
struct RunOp {
  std::uint64_t tag = 0;
  ClientMessage message;
};
/// Connection -> bridge: comes back as FlushMark after everything that the bridge was sent before.
struct Flush {};

/// Bridge -> connection: the router refused the request `tag`.
struct Refused {
  std::uint64_t tag = 0;
  Error error;
};
/// Bridge -> connection: the finished answer to anything but a generate or cancel.
struct ReplyLine {
  std::string line;
};
struct FlushMark {};
/// The engine has ended: no live request will get an output any more.
struct RouterGone {};

using BridgeEvent = std::variant<OutputBatch, Refused, ReplyLine, FlushMark, RouterGone>;

/// Carries events from the bridge, on CAF's threads, to the connection, on the I/O thread. Events that come together
/// are handed over together, with one wake-up. Thread-safe.
class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  /// Called on the I/O thread with the events in order.
  using Deliver = std::function<void(std::vector<BridgeEvent>&)>;

  Outbox(boost::asio::io_context& io, Deliver deliver) : io_(&io), deliver_(std::move(deliver)) {}

  void push(BridgeEvent event);

  /// I/O thread. Nothing is delivered after it, and `io` is not touched any more.
  void close();

 private:
  void hand_over();

  std::mutex mutex_;
  boost::asio::io_context* io_;      ///< null once closed
  std::vector<BridgeEvent> events_;  ///< not handed over yet
  Deliver deliver_;                  ///< I/O thread only
};

using BridgeActor =
    actors::Interface<caf::result<void>(OutputBatch), caf::result<void>(RunOp), caf::result<void>(Flush)>;

/// Ends when told to exit.
BridgeActor spawn_bridge(caf::actor_system& system, actors::RequestRouterActor router, std::shared_ptr<Outbox> outbox);

}  // namespace pagoda::json_lines

CAF_BEGIN_TYPE_ID_BLOCK(pagoda_json_lines, caf::id_block::pagoda::end)
CAF_ADD_TYPE_ID(pagoda_json_lines, (pagoda::json_lines::RunOp))
CAF_ADD_TYPE_ID(pagoda_json_lines, (pagoda::json_lines::Flush))
CAF_END_TYPE_ID_BLOCK(pagoda_json_lines)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::json_lines::RunOp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::json_lines::Flush)
