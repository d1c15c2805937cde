#include "apps/chat_turn.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace pagoda::apps {
namespace {

constexpr auto kInterruptPoll = std::chrono::milliseconds(50);  // needed because a signal handler cannot notify

/// Values that the engine's thread passes to the thread that waits.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  std::optional<Result<RequestResult>> end;

  void put(const RequestOutput& output) {
    const std::lock_guard lock(mutex);
    for (const auto& delta : output.deltas) text += delta.text;
    if (output.done) end = *output.done;
    if (output.error) end = fail(*output.error);
    changed.notify_one();
  }
};

}  // namespace

Result<RequestResult> run_turn(Engine& engine, GenerateRequest request, Interrupts& interrupts,
                               const std::function<void(std::string_view)>& on_text) {
  request.stream = true;
  const auto inbox = std::make_shared<Inbox>();
  const auto ticket = engine.submit(std::move(request), [inbox](const RequestOutput& output) { inbox->put(output); });
  if (!ticket) return fail(ticket.error());
  for (;;) {
    std::unique_lock lock(inbox->mutex);
    inbox->changed.wait_for(lock, kInterruptPoll, [&] { return !inbox->text.empty() || inbox->end; });
    const auto text = std::exchange(inbox->text, {});
    auto end = std::move(inbox->end);
    lock.unlock();
    if (!text.empty()) on_text(text);
    if (end) return std::move(*end);
    if (interrupts.take()) engine.cancel(*ticket);
  }
}

}  // namespace pagoda::apps
