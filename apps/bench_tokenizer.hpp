#pragma once

#include "apps/command.hpp"

namespace pagoda::apps {

/// `pagoda bench tokenizer`: how fast one thread turns text into ids and back.
Command add_bench_tokenizer(CLI::App& bench);

}  // namespace pagoda::apps
