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

/// Tells those who watch what a model's engine is doing, as events of a stream (docs/page.md). The engine is asked once
/// for all of them, kInterval after the last question at the earliest, and not before it has answered that. Lives as
/// long as somebody watches; nothing is asked of the engine otherwise. I/O thread only.
class LiveFeed : public std::enable_shared_from_this<LiveFeed> {
 public:
  /// All must outlive it.
  LiveFeed(const ApiContext& context, const serving::ServedModel& model, boost::asio::io_context& io);

  /// From now on until its client goes. Too many watchers are refused.
  void join(const std::shared_ptr<Exchange>& watcher);

 private:
  void leave(const Exchange* watcher);
  void tick();
  void on_events(std::vector<serving::Event>& events);
  void tell(std::string_view event);
  void end(std::string_view last_event);

  const ApiContext& context_;
  const serving::ServedModel& model_;
  boost::asio::steady_timer timer_;
  std::vector<std::shared_ptr<Exchange>> watchers_;
  serving::Session session_;
  bool is_asked_ = false;  ///< and has not answered
  std::uint64_t last_span_ = 0;
};

}  // namespace pagoda::http::page
