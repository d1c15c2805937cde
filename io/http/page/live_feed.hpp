#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "io/http/api_context.hpp"
#include "io/http/exchange.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http::page {

/// Sends the state of a model's engine to all watchers, as events of a stream (docs/page.md). One question to the
/// engine serves all watchers. The next question is sent when the previous one is answered and kInterval has passed.
/// Lives as long as there are watchers. Without watchers no questions are sent. I/O thread only.
class LiveFeed : public std::enable_shared_from_this<LiveFeed> {
 public:
  /// The references must outlive the feed. `replica`: the one whose KV blocks are shown.
  LiveFeed(const ApiContext& context, const serving::ServedModel& model, ReplicaId replica,
           boost::asio::io_context& io);

  /// Adds a watcher until its client disconnects. Refuses watchers above the limit.
  void join(const std::shared_ptr<Exchange>& watcher);

 private:
  void leave(const Exchange* watcher);
  void tick();
  void on_events(std::vector<serving::Event>& events);
  void broadcast(std::string_view event);
  void end(std::string_view last_event);

  const ApiContext& context_;
  const serving::ServedModel& model_;
  ReplicaId replica_;
  boost::asio::steady_timer timer_;
  std::vector<std::shared_ptr<Exchange>> watchers_;
  serving::Session session_;
  bool is_asked_ = false;  ///< whether a question is unanswered
  std::uint64_t last_span_ = 0;
};

}  // namespace pagoda::http::page
