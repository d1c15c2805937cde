// Loads and stores of the first lanes of a vector. Included once per instruction set or matrix unit; PAGODA_SIMD names
// the namespace.

#include <cstdint>
#include <cstring>

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Loads the first `count` lanes, at most all; the others are 0.
inline Vec load_first(const float* p, std::int64_t count) {
  if (count == kLanes) return load(p);
  float copy[kLanes] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(count) * sizeof(float));
  return load(copy);
}

inline void store_first(float* p, std::int64_t count, Vec x) {
  if (count == kLanes) return store(p, x);
  float copy[kLanes];
  store(copy, x);
  std::memcpy(p, copy, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
