#pragma once

/// Limits of the machine, measured once per run: the per-op benchmarks are compared with them. With PAGODA_BENCH_ISA (a
/// name of --cpu-isa), ops and limits use this instruction set.

#include <chrono>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::bench {

/// Returns the bytes per second that all threads together read from a buffer much larger than the caches, at best.
double peak_read_bytes_per_second();

/// Returns the bytes per second that the threads read at this moment: other machines on a host share its memory, so the
/// rate changes from second to second.
double read_bytes_per_second_now();

/// Returns the floating-point operations per second of all threads: float32 multiply-adds on registers only.
double peak_f32_flops();

/// Returns the operations per second of bfloat16 dot products (AVX512_BF16); 0 if the machine has none.
double peak_bf16_flops();

/// Returns the integer operations per second of all threads: dot products of bytes (AVX-512 VNNI or AVX-VNNI; in AVX2 a
/// chain of three instructions) on registers only; 0 if the machine has none.
double peak_int8_ops();

/// Return the device under test, and one of its streams.
Device& device();
Stream& stream();

enum class Arithmetic { floats, integers };

struct Samples {
  std::vector<double> seconds;     ///< seconds of the op
  std::vector<double> read_rates;  ///< bytes per second of the read loop, which runs between iterations
};

/// Sets the counters of `measure`.
void report(benchmark::State& state, double bytes, double flops, Arithmetic arithmetic, Samples samples);

/// Benchmarks `issue(ops, stream)`. The time of an iteration is that of the op on the stream's thread, without the
/// hand-over. Counters are from the median iteration, since other programs disturb the mean: GB/s and GFLOP/s, and
/// their percentage of the peaks of this run (GOP/s and %int8 for integers). %read is relative to the median of a read
/// loop (read_GB/s) that takes turns with the op. best_GB/s is that of the fastest iteration.
template <class Issue>
void measure(benchmark::State& state, double bytes, double flops, const Issue& issue,
             Arithmetic arithmetic = Arithmetic::floats) {
  Samples samples;
  for (auto _ : state) {
    samples.read_rates.push_back(read_bytes_per_second_now());
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
    samples.seconds.push_back(elapsed);
  }
  report(state, bytes, flops, arithmetic, std::move(samples));
}

}  // namespace pagoda::kernels::bench
