#pragma once

#include <cstdint>
#include <random>

namespace pagoda::bench_serve {

/// Times at which the requests of an open loop are due. The intervals have a gamma distribution. Its shape, the
/// burstiness, is 1 for a Poisson process, less for bursts, more for an even flow, and infinite for a fixed rate.
class Arrivals {
 public:
  /// `rate`: requests a second, above 0. Infinite: all are due at once.
  Arrivals(double rate, double burstiness, std::uint64_t seed);

  /// Returns when the next request is due, in seconds from the start. The first is due at 0.
  double next();

 private:
  double gap();

  double rate_;
  double burstiness_;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_;
  double due_s_ = 0;
};

}  // namespace pagoda::bench_serve
