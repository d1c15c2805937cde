#pragma once

/// The GPU under test, and the timing of ops on it.

#include <cstddef>
#include <cstdint>
#include <functional>

#include <benchmark/benchmark.h>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::bench {

/// Returns the first CUDA device. If there is none, the program ends with exit code 2 and a message.
Device& gpu();
Stream& gpu_stream();

/// Returns device memory with bits that are numbers near 1 in every float type.
Buffer random_memory(std::int64_t bytes);
/// Returns device memory with these values.
Buffer device_copy(const void* values, std::size_t bytes);
template <class Container>
Buffer device_copy(const Container& values) {
  return device_copy(values.data(), values.size() * sizeof(values[0]));
}

enum class Issue : std::uint8_t {
  graph,   ///< recorded once with all repetitions, so that the host's time does not count
  direct,  ///< for ops that cannot be recorded
};

/// Benchmarks `op`: an iteration runs it `repetitions` times on an otherwise empty stream, until the device has
/// finished. Counters per repetition: us, and if they are not 0, GB/s of `bytes` and TFLOP/s of `flops`.
void measure(benchmark::State& state, double bytes, double flops, int repetitions, Issue issue,
             const std::function<Status(const Ops&, Stream&)>& op);

}  // namespace pagoda::kernels::bench
