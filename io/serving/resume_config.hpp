#pragma once

#include <cstdint>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::serving {

/// Options of streams that are kept for clients that reconnect. Field names are the keys of a config file and, with
/// dashes, the flags. The limits apply to each server of the process separately.
struct ResumeConfig {
  std::int64_t resume_window = 60;  ///< seconds that a stream without a reader is kept; 0: no streams are kept
  std::int64_t max_resumable_streams = 1024;
  std::int64_t resume_buffer_mib = 256;  ///< MiB of the events of all streams together
  bool is_recorded = false;  ///< whether requests are recorded in the engine's journal, to continue them after a crash

  /// Returns every problem; `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::serving
