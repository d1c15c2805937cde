#pragma once

/// A thin layer over CAF 0.17 (Debian) and CAF 1.x: sources are written in the style of 1.x and compile with both.
/// CAF_VERSION is octal in 1.1, so the presence of CAF_VERSION_MAJOR decides which version this is.

#include <chrono>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/result.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/retry_on_bad_alloc.hpp"
#ifdef CAF_VERSION_MAJOR
#include <caf/anon_mail.hpp>
#include <caf/init_global_meta_objects.hpp>
#else
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace pagoda::actors {

/// The thread sanitizer cannot see the mailboxes of a CAF library that was built without it. These functions declare
/// that everything before a send happens before the receipt. In other builds they do nothing.
namespace happens_before {
#ifdef __SANITIZE_THREAD__
inline char mailboxes;
inline void sent() {
  __tsan_release(&mailboxes);
}
inline void received() {
  __tsan_acquire(&mailboxes);
}
#else
inline void sent() {}
inline void received() {}
#endif

template <class F, class R, class C, class A>
auto received_then(F f, R (C::*)(A) const) {
  return [f = std::move(f)](A message) {
    received();
    f(message);
  };
}
template <class F, class R, class C, class A>
auto received_then(F f, R (C::*)(A)) {
  return [f = std::move(f)](A message) mutable {
    received();
    f(message);
  };
}
/// Returns a handler that calls received() and then `f`.
template <class F>
auto received_then(F f) {
  return received_then(std::move(f), &F::operator());
}
}  // namespace happens_before

#ifndef CAF_VERSION_MAJOR
namespace detail {

template <class Signature>
struct LegacySignature;
template <class R, class... Args>
struct LegacySignature<caf::result<R>(Args...)> {
  using type = typename caf::replies_to<Args...>::template with<R>;
};
template <class... Args>
struct LegacySignature<caf::result<void>(Args...)> {
  using type = caf::reacts_to<Args...>;
};

}  // namespace detail
#endif

/// Typed actor handle, written with 1.x signatures: Interface<caf::result<R>(Args...), ...>.
#ifdef CAF_VERSION_MAJOR
template <class... Signatures>
using Interface = caf::typed_actor<Signatures...>;
#else
template <class... Signatures>
using Interface = caf::typed_actor<typename detail::LegacySignature<Signatures>::type...>;
#endif

/// Returns the state of a stateful actor. A handler calls this first, because it also marks the message as received.
/// States need a constructor of their own: 0.17 would initialise an aggregate from the self pointer.
template <class Self>
auto& state_of(Self* self) {
  happens_before::received();
#ifdef CAF_VERSION_MAJOR
  auto& state = self->state();
#else
  auto& state = self->state;
#endif
  static_assert(!std::is_aggregate_v<std::remove_reference_t<decltype(state)>>);
  return state;
}

/// Sends without expecting an answer. Call last in a handler: a receiver on the thread pool wakes late while the sender
/// computes.
template <class Self, class Handle, class Message>
void send(Self* self, const Handle& receiver, Message&& message) {
  happens_before::sent();
#ifdef CAF_VERSION_MAJOR
  self->mail(std::forward<Message>(message)).send(receiver);
#else
  self->send(receiver, std::forward<Message>(message));
#endif
}

/// Sends to every rank.
template <class Self, class Handle, class Message>
void send_to_all(Self* self, const std::vector<Handle>& receivers, Message message) {
  for (std::size_t rank = 1; rank < receivers.size(); ++rank) send(self, receivers[rank], message);
  send(self, receivers.at(0), std::move(message));
}

/// Sends from outside any actor: stream callbacks, sockets, destructors.
template <class Handle, class Message>
void send_anonymously(const Handle& receiver, Message&& message) {
  happens_before::sent();
#ifdef CAF_VERSION_MAJOR
  caf::anon_mail(std::forward<Message>(message)).send(receiver);
#else
  caf::anon_send(receiver, std::forward<Message>(message));
#endif
}

template <class Self, class Handle, class Message>
void send_later(Self* self, const Handle& receiver, std::chrono::microseconds delay, Message&& message) {
  happens_before::sent();
#ifdef CAF_VERSION_MAJOR
  self->mail(std::forward<Message>(message)).delay(delay).send(receiver);
#else
  self->delayed_send(receiver, delay, std::forward<Message>(message));
#endif
}

/// Sends a request. Later, exactly one of the handlers is called, on the caller's actor.
template <class Self, class Handle, class Message, class OnAnswer, class OnError>
void request(Self* self, const Handle& receiver, Message&& message, OnAnswer on_answer, OnError on_error) {
  happens_before::sent();
#ifdef CAF_VERSION_MAJOR
  self->mail(std::forward<Message>(message))
      .request(receiver, caf::infinite)
      .then(happens_before::received_then(std::move(on_answer)), std::move(on_error));
#else
  self->request(receiver, caf::infinite, std::forward<Message>(message))
      .then(happens_before::received_then(std::move(on_answer)), std::move(on_error));
#endif
}

/// Sends a request and waits, on a thread that runs no actor. `on_answer` is not called when the receiver has ended.
template <class Handle, class Message, class OnAnswer>
void ask(caf::scoped_actor& self, const Handle& receiver, Message&& message, OnAnswer on_answer) {
  const auto ignore = [](caf::error&) {};
  happens_before::sent();
#ifdef CAF_VERSION_MAJOR
  self->mail(std::forward<Message>(message))
      .request(receiver, caf::infinite)
      .receive(happens_before::received_then(std::move(on_answer)), ignore);
#else
  self->request(receiver, caf::infinite, std::forward<Message>(message))
      .receive(happens_before::received_then(std::move(on_answer)), ignore);
#endif
}

/// Returns `answer` for a handler to return, and marks it as sent.
template <class Answer>
Answer reply(Answer answer) {
  happens_before::sent();
  return answer;
}

/// Answers a request that its handler could not answer at once.
template <class Promise, class Answer>
void deliver(Promise& promise, Answer answer) {
  happens_before::sent();
  promise.deliver(std::move(answer));
}

/// Ends an actor before it handles the messages that wait in its mailbox.
template <class Handle>
void end_now(const Handle& whom) {
  const auto receiver = caf::actor_cast<caf::actor>(whom);
  if (!receiver) return;
  happens_before::sent();
  retry_on_bad_alloc([&] {
    caf::exit_msg message{receiver.address(), caf::exit_reason::user_shutdown};
#ifdef CAF_VERSION_MAJOR
    caf::anon_mail(std::move(message)).urgent().send(receiver);
#else
    caf::anon_send<caf::message_priority::high>(receiver, std::move(message));
#endif
  });
}

#ifdef CAF_VERSION_MAJOR
namespace detail {

/// CAF 1.x calls the functor when the actor ends, then destroys the actor's state, then the functor. The functor holds
/// this object, whose destructor calls `on_end`, so `on_end` runs after the state is gone.
template <class OnEnd>
class AfterState {
 public:
  explicit AfterState(OnEnd on_end) : on_end_(std::move(on_end)) {}
  AfterState(const AfterState&) = delete;
  AfterState& operator=(const AfterState&) = delete;
  ~AfterState() {
    if (has_ended_) on_end_();
  }
  void set_ended() { has_ended_ = true; }

 private:
  OnEnd on_end_;
  bool has_ended_ = false;
};

}  // namespace detail
#endif

/// Calls `on_end()` once `whom` has ended and its state is destroyed, or at once if it has already ended; with CAF 1.x
/// also at once if it is about to end. Runs on any thread: `on_end` may only send.
template <class Handle, class OnEnd>
void when_ended(const Handle& whom, OnEnd on_end) {
  happens_before::sent();
  auto received = [on_end = std::move(on_end)]() mutable {
    happens_before::received();
    on_end();
  };
#ifdef CAF_VERSION_MAJOR
  auto after = std::make_shared<detail::AfterState<decltype(received)>>(std::move(received));
  caf::actor_cast<caf::actor>(whom)->attach_functor([after = std::move(after)] { after->set_ended(); });
#else
  caf::actor_cast<caf::actor>(whom)->attach_functor(std::move(received));
#endif
}

/// Configures a small pool whose threads sleep when idle. The work stealing that CAF uses by default polls.
inline void configure_pool(caf::actor_system_config& config, std::size_t num_threads) {
#ifdef CAF_VERSION_MAJOR
  config.set("caf.scheduler.policy", "sharing");
  config.set("caf.scheduler.max-threads", num_threads);
#else
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", num_threads);
#endif
}

}  // namespace pagoda::actors
