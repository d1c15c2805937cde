#pragma once

#include <memory>
#include <new>
#include <utility>

#include "actors/caf_compat.hpp"

namespace pagoda::actors {

/// The answer to a request that its handler cannot give at once. Where the last copy goes without one, as when the
/// actor ends in the middle of something, who asked hears an error; CAF 0.17 itself leaves them waiting.
template <class Answer>
class Promise {
 public:
  /// In the handler of the request.
  template <class Self>
  explicit Promise(Self* self) : held_(std::make_shared<Held>()) {
    held_->promise = self->template make_response_promise<Answer>();
  }

  template <class T>
  void deliver(T answer) {
    held_->promise.deliver(std::move(answer));
  }

  /// What the handler returns.
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
        retry_on_bad_alloc(
            [this] { promise.deliver(caf::make_error(caf::sec::runtime_error, "who was asked has ended")); });
      } catch (const std::bad_alloc&) {  // then nobody can be told anything
      }
    }

    caf::typed_response_promise<Answer> promise;
  };

  std::shared_ptr<Held> held_;
};

}  // namespace pagoda::actors
