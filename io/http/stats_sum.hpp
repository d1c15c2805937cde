#pragma once

#include <vector>

#include "engine/stats.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// What the engines of several models have done and have together. `answers`: the stats of each. Health is "ok", or
/// that of the first that is not well; overloaded are they only together; the uptime is the longest.
EngineStats sum_of(const std::vector<serving::Answer>& answers);

}  // namespace pagoda::http
