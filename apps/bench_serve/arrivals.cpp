#include "apps/bench_serve/arrivals.hpp"

#include <cmath>

namespace pagoda::bench_serve {

Arrivals::Arrivals(double rate, double burstiness, std::uint64_t seed)
    : rate_(rate),
      burstiness_(burstiness),
      random_(seed),
      gap_(std::isinf(burstiness) ? 1 : burstiness, std::isinf(burstiness) ? 1 : 1 / (rate * burstiness)) {}

double Arrivals::next() {
  const double due = due_s_;
  due_s_ += gap();
  return due;
}

double Arrivals::gap() {
  if (std::isinf(rate_)) return 0;
  return std::isinf(burstiness_) ? 1 / rate_ : gap_(random_);
}

}  // namespace pagoda::bench_serve
