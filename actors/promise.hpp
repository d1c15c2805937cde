#pragma once

#include <memory>
#include <new>
#include <utility>

#include "actors/caf_compat.hpp"

namespace pagoda::actors {

/// The answer to a request that its handler cannot give at once. If the last copy is destroyed without an answer,
/// for example because the actor ends, the sender of the request gets an error. CAF 0.17 itself would let the sender
/// wait.
template <class Answer>
class Promise {
 public:
  /// Call in the handler of the request.
  template <class Self>
  explicit Promise(Self* self) : held_(std::make_shared<Held>()) {
    held_->promise = self->template make_response_promise<Answer>();
  }

  template <class T>
  void deliver(T answer) {
    held_->promise.deliver(std::move(answer));
  }

  /// Returns the value that the handler returns.
  caf::typed_response_promise<Answer> handle() const { return held_->promise; }

 private:
  struct Held {
    Held() = default;
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (!promise.pending()) return;
      try {
        happens_before::sent();
        retry_on_bad_alloc([this] {
          promise.deliver(caf::make_error(caf::sec::runtime_error, "the actor that received the request has ended"));
        });
      } catch (const std::bad_alloc&) {  // then no answer can be sent
      }
    }

    caf::typed_response_promise<Answer> promise;
  };

  std::shared_ptr<Held> held_;
};

}  // namespace pagoda::actors
