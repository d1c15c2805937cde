/// Runs simulations of scheduler and block manager (tests/engine/scheduling/simulation.hpp), seed after seed, in
/// several processes: pagoda_simulate [FIRST_SEED [COUNT [JOBS]]]. A seed that fails is named with its configuration;
/// to look into it run it alone. Exit code 1 when one has failed. With a terminal, progress on stderr.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/scheduling/simulation.hpp"

namespace pagoda::test {
namespace {

int run_seeds(std::uint64_t first, std::uint64_t end, std::uint64_t stride, bool shows_progress) {
  int failed = 0;
  for (std::uint64_t seed = first; seed < end; seed += stride) {
    const SimulationConfig config = random_simulation(seed);
    if (const auto error = Simulation(config, seed).run()) {
      std::printf("seed %lu: %s (%s)\n", static_cast<unsigned long>(seed), error->c_str(), describe(config).c_str());
      std::fflush(stdout);
      failed = 1;
    }
    if (shows_progress && seed / stride % 100 == 0) {
      std::fprintf(stderr, "\r%lu of %lu ", static_cast<unsigned long>(seed), static_cast<unsigned long>(end));
    }
  }
  return failed;
}

}  // namespace
}  // namespace pagoda::test

int main(int argc, char** argv) {
  const auto number = [&](int index, unsigned long otherwise) {
    return argc > index ? std::strtoul(argv[index], nullptr, 10) : otherwise;
  };
  const unsigned long first = number(1, 0);
  const unsigned long count = number(2, 1);
  const unsigned long jobs = number(3, 1);
  for (unsigned long job = 0; job < jobs; ++job) {
    if (fork() > 0) continue;
    const bool shows_progress = job == 0 && isatty(STDERR_FILENO) != 0;
    std::exit(pagoda::test::run_seeds(first + job, first + count, jobs, shows_progress));
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status == 0 ? 0 : 1;
  std::printf("%lu seeds: %s\n", count, failed == 0 ? "all as they should be" : "FAILED");
  return failed;
}
