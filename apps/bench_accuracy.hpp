#pragma once

#include "apps/command.hpp"

namespace pagoda::apps {

/// `pagoda bench accuracy`: perplexity of a model over a text, and how near its distributions are to a reference's.
Command add_bench_accuracy(CLI::App& bench);

}  // namespace pagoda::apps
