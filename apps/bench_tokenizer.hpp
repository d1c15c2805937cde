#pragma once

#include "apps/command.hpp"

namespace pagoda::apps {

/// Adds `pagoda bench tokenizer`: measures how fast one thread encodes text to ids and decodes it.
Command add_bench_tokenizer(CLI::App& bench);

}  // namespace pagoda::apps
