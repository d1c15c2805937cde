#pragma once

/// What the machine can do at most, measured once per run: the yardsticks of the per-op benchmarks.

#include <chrono>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::bench {

/// Bytes per second that all threads together read from a buffer much larger than the caches.
double peak_read_bytes_per_second();

/// Floating-point operations per second of all threads: float32 multiply-adds on registers alone.
double peak_f32_flops();

/// The same for bfloat16 dot products (AVX512_BF16); 0 where the machine has none.
double peak_bf16_flops();

/// Integer operations per second of all threads: dot products of bytes (AVX-512 VNNI or AVX-VNNI) on registers alone; 0
/// where the machine has none.
double peak_int8_ops();

/// The device under test, and one of its streams.
Device& device();
Stream& stream();

enum class Arithmetic { floats, integers };

/// Sets the counters of `measure`.
void report(benchmark::State& state, double bytes, double flops, Arithmetic arithmetic, std::vector<double> seconds);

/// Benchmarks `issue(ops, stream)`: the time of an iteration is that of the op on the stream's thread, without the
/// hand-over. Counters, from the median iteration, since other programs disturb the mean: GB/s and GFLOP/s, and what
/// per cent of the peaks of the same run they are (GOP/s and %int8 for integers); best_GB/s is that of the fastest
/// iteration.
template <class Issue>
void measure(benchmark::State& state, double bytes, double flops, const Issue& issue,
             Arithmetic arithmetic = Arithmetic::floats) {
  std::vector<double> seconds;
  for (auto _ : state) {
    Status status;
    double elapsed = 0;
    stream().submit([&] {
      const auto start = std::chrono::steady_clock::now();
      status = issue(device().ops(), stream());
      elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
    stream().synchronize();
    PAGODA_ASSERT(status.has_value(), status.error().message);
    state.SetIterationTime(elapsed);
    seconds.push_back(elapsed);
  }
  report(state, bytes, flops, arithmetic, std::move(seconds));
}

}  // namespace pagoda::kernels::bench
