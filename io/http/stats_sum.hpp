#pragma once

#include <vector>

#include "engine/stats.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// Returns the sum of the stats of several models. `answers` holds the stats of each model. Health is "ok", or the
/// health of the first model that is not "ok". overloaded is true if all models are overloaded. The uptime is the
/// longest. Those of a single model stay as they are, with its replicas.
EngineStats sum_of(const std::vector<serving::Answer>& answers);

}  // namespace pagoda::http
