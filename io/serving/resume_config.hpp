#pragma once

#include <cstdint>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::serving {

/// How streams are kept for clients that come back. Field names are the keys of a config file and, with dashes, the
/// flags; the limits are of each server of the process.
struct ResumeConfig {
  std::int64_t resume_window = 60;  ///< seconds that a stream without a reader is kept; 0: none is
  std::int64_t max_resumable_streams = 1024;
  std::int64_t resume_buffer_mib = 256;  ///< of all their events
  bool is_recorded = false;              ///< in the engine's journal: they can be taken up again after a crash

  /// Every problem at once; `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::serving
