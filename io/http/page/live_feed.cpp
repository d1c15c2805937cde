#include "io/http/page/live_feed.hpp"

#include <chrono>
#include <exception>
#include <utility>
#include <variant>

#include "io/http/page/view_text.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::page {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr std::size_t kMaxWatchers = 16;
/// Events are not sent to a watcher with more unsent bytes.
constexpr std::size_t kMaxUnsentBytes = 1 << 20;

std::string end_event(std::string_view message) {
  std::string out = "event: end\ndata: ";
  wire::JsonWriter json(out);
  json.open_object().field("message", message).close_object();
  return out + "\n\n";
}

}  // namespace

LiveFeed::LiveFeed(const ApiContext& context, const serving::ServedModel& model, ReplicaId replica,
                   boost::asio::io_context& io)
    : context_(context),
      model_(model),
      replica_(replica),
      timer_(io),
      session_(io, context.system, [this](std::vector<serving::Event>& events) { on_events(events); }) {}

void LiveFeed::join(const std::shared_ptr<Exchange>& watcher) {
  if (watchers_.size() >= kMaxWatchers) {
    return watcher->respond_error(
        {503, "only " + std::to_string(kMaxWatchers) + " pages may watch the engine at a time"});
  }
  watchers_.push_back(watcher);
  watcher->on_closed([self = shared_from_this(), who = watcher.get()] { self->leave(who); });
  watcher->begin_stream(200, "text/event-stream", {{"cache-control", "no-store"}});
  if (watchers_.size() == 1) tick();
}

void LiveFeed::leave(const Exchange* watcher) {
  std::erase_if(watchers_, [&](const auto& each) { return each.get() == watcher; });
  if (watchers_.empty()) timer_.cancel();
}

void LiveFeed::tick() {
  if (watchers_.empty()) return;
  if (context_.is_ending) return end(end_event("the server is shutting down"));
  if (!std::exchange(is_asked_, true)) session_.ask(model_.router, 0, actors::GetView{last_span_, replica_});
  timer_.expires_after(kInterval);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (cancelled || !self) return;
    try {
      self->tick();
    } catch (const std::exception& error) {  // for example if memory is out; pages reconnect
      self->end(end_event(error.what()));
    }
  });
}

void LiveFeed::on_events(std::vector<serving::Event>& events) {
  const auto self = shared_from_this();
  for (const auto& event : events) {
    if (std::holds_alternative<serving::SessionFailed>(event)) return end(end_event("the engine does not answer"));
    const auto* answered = std::get_if<serving::QueryAnswered>(&event);
    if (answered == nullptr) continue;
    is_asked_ = false;
    if (const auto* view = std::get_if<serving::SharedView>(&answered->answer)) {
      last_span_ = (*view)->last_span;
      broadcast("data: " + view_text(**view) + "\n\n");
    } else {
      end(end_event("the engine does not answer"));
    }
  }
}

void LiveFeed::broadcast(std::string_view event) {
  for (const auto& watcher : watchers_) {
    if (watcher->unsent_bytes() < kMaxUnsentBytes) watcher->write(event);
  }
}

void LiveFeed::end(std::string_view last_event) {
  timer_.cancel();
  for (const auto& watcher : std::exchange(watchers_, {})) {
    watcher->write(last_event);
    watcher->end_stream();
  }
}

}  // namespace pagoda::http::page
