#pragma once

#include <functional>
#include <memory>

#include "actors/interfaces.hpp"
#include "io/serving/outbox.hpp"

namespace pagoda::serving {

/// Calls `on_gone` once on the I/O thread when the engine has ended: live requests get no outputs any more. Create and
/// destroy on the I/O thread.
class EngineWatch {
 public:
  EngineWatch(boost::asio::io_context& io, const actors::RequestRouterActor& router, std::function<void()> on_gone)
      : outbox_(std::make_shared<Outbox<Gone>>(io, [on_gone = std::move(on_gone)](std::vector<Gone>&) { on_gone(); })) {
    actors::when_ended(router, [outbox = outbox_] { actors::retry_on_bad_alloc([&] { outbox->push(Gone{}); }); });
  }
  ~EngineWatch() { outbox_->close(); }
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

 private:
  struct Gone {};
  std::shared_ptr<Outbox<Gone>> outbox_;
};

}  // namespace pagoda::serving
