#pragma once

#include "apps/command.hpp"

namespace pagoda::apps {

/// Adds `pagoda bench accuracy`: the perplexity of a model over a text, and the distance of its distributions to those
/// of a reference.
Command add_bench_accuracy(CLI::App& bench);

}  // namespace pagoda::apps
