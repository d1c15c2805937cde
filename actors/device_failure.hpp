#pragma once

#include <exception>
#include <string>

#include "actors/interfaces.hpp"

namespace pagoda::actors {

/// Reports to `owner`, if it still lives, that its device has failed. Call from a callback of a stream. Waits and tries
/// again when there is no memory for the error.
template <class Owner, class MakeError>
void report_failure(const caf::actor_addr& owner, const MakeError& make_error, bool without_progress,
                    bool memory_lost) {
  retry_on_bad_alloc([&] {
    if (const auto alive = caf::actor_cast<Owner>(owner)) {
      send_anonymously(alive, DeviceFailed{make_error(), without_progress, memory_lost});
    }
  });
}

/// Runs the reports of a stream's callbacks, in their order. When a report throws (usually because memory is out), it
/// is lost: the owner gets a failure, so that its work is recomputed from the known state. Later callbacks report
/// nothing, because the receiver could not interpret their reports without the lost one.
template <class Owner>
class CallbackSender {
 public:
  /// Runs `report`, unless an earlier report was lost, and catches what it throws. `memory_lost`: as in DeviceFailed.
  template <class Report>
  void run(const caf::actor_addr& owner, bool memory_lost, const Report& report) {
    if (has_lost_one_) return;
    try {
      report();
    } catch (const std::exception& problem) {
      has_lost_one_ = true;
      const auto lost = [&] {
        return Error{ErrorCode::internal, std::string("the state of the device is not known: ") + problem.what()};
      };
      report_failure<Owner>(owner, lost, false, memory_lost);
    }
  }

 private:
  bool has_lost_one_ = false;  ///< whether a report was lost; no lock, because callbacks run one after the other
};

/// Ends the owner of a stream that has failed. Sends the reason to the supervisor before the end.
template <class Self>
void end_with(Self* self, const caf::actor_addr& supervisor, const DeviceFailed& failed) {
  if (const auto keeper = caf::actor_cast<DeviceKeeperActor>(supervisor)) send(self, keeper, failed);
  self->quit(caf::make_error(caf::sec::runtime_error, failed.error.message));
}

}  // namespace pagoda::actors
