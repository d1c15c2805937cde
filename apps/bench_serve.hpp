#pragma once

#include "apps/command.hpp"

namespace pagoda::apps {

/// Adds `pagoda bench serve`: loads any server that speaks OpenAI's API, and reports what its clients see.
Command add_bench_serve(CLI::App& bench);

}  // namespace pagoda::apps
