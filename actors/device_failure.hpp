#pragma once

#include <exception>
#include <string>

#include "actors/interfaces.hpp"

namespace pagoda::actors {

/// From a callback of a stream: `owner`, if it is still there, hears that the device has failed, and with what error.
/// There may be no memory for it at once.
template <class Owner, class MakeError>
void report_failure(const caf::actor_addr& owner, const MakeError& make_error, bool without_progress,
                    bool memory_lost) {
  retry_on_bad_alloc([&] {
    if (const auto alive = caf::actor_cast<Owner>(owner)) {
      send_anonymously(alive, DeviceFailed{make_error(), without_progress, memory_lost});
    }
  });
}

/// What the callbacks of a stream tell, in their order. Where one throws, as for want of memory, what it was to tell is
/// lost: its owner has failed, so that what runs comes back from what is known of it, and the callbacks behind it,
/// which nobody could make sense of, tell nothing.
template <class Owner>
class CallbackSender {
 public:
  /// `memory_lost`: as DeviceFailed.
  template <class Tell>
  void tell(const caf::actor_addr& owner, bool memory_lost, const Tell& what) {
    if (has_lost_one_) return;
    try {
      what();
    } catch (const std::exception& problem) {
      has_lost_one_ = true;
      const auto lost = [&] {
        return Error{ErrorCode::internal, std::string("what the device has done is not known: ") + problem.what()};
      };
      report_failure<Owner>(owner, lost, false, memory_lost);
    }
  }

 private:
  bool has_lost_one_ = false;  ///< callbacks come one after the other
};

/// The owner of a stream that has failed ends; the supervisor hears why before it hears of the end.
template <class Self>
void end_with(Self* self, const caf::actor_addr& supervisor, const DeviceFailed& failed) {
  if (const auto told = caf::actor_cast<DeviceKeeperActor>(supervisor)) send(self, told, failed);
  self->quit(caf::make_error(caf::sec::runtime_error, failed.error.message));
}

}  // namespace pagoda::actors
