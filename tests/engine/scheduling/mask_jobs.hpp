#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/scheduling/request_masks.hpp"

namespace pagoda::test {

/// Runs jobs to their end.
inline std::vector<scheduling::MadeMask> run_all(std::vector<scheduling::MaskJob> jobs) {
  std::vector<scheduling::MadeMask> made;
  for (scheduling::MaskJob& job : jobs) {
    for (std::uint64_t work = grammar::kMaxMaskWork; !job.run(work);) work = grammar::kMaxMaskWork;
    made.push_back(std::move(job.made));
  }
  return made;
}

}  // namespace pagoda::test
