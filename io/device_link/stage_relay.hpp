#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "io/device_link/frame_channel.hpp"
#include "io/device_link/messages.hpp"
#include "io/device_link/stage_link.hpp"

namespace pagoda::device_link {

/// Passes the rows of each stage of a replica to the process of the next one, where each stage is a worker that has
/// joined (StageLink is their side). Thread-safe.
class StageRelay {
 public:
  /// `max_floats`: maximum number of floats that a stage passes in a step.
  StageRelay(int num_stages, std::int64_t max_floats);

  /// From now on this process has the stage. The channel must live until disconnect().
  void connect(int stage, FrameChannel& channel);
  /// Does nothing if another process has the stage.
  void disconnect(int stage, const FrameChannel& channel);

  /// Passes a message of the stage on, or drops it if the next stage has no process. Returns false if no stage sends
  /// such a message.
  bool pass(int from_stage, StageRows rows);

 private:
  struct Stage {
    FrameChannel* channel = nullptr;
    StageRowsChecks checks;
  };

  std::mutex mutex_;
  std::vector<Stage> stages_;
  const std::int64_t max_floats_;
};

}  // namespace pagoda::device_link
