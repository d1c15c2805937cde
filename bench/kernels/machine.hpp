#pragma once

/// What the machine can do at most, measured once per run: the yardsticks of the per-op benchmarks. With
/// PAGODA_BENCH_ISA (a name of --cpu-isa) ops and peaks are those of that instruction set.

#include <chrono>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::bench {

/// Bytes per second that all threads together read from a buffer much larger than the caches, in its best moment.
double peak_read_bytes_per_second();

/// The same at this moment: other machines on a host share its memory, and what they leave changes from second to
/// second.
double read_bytes_per_second_now();

/// Floating-point operations per second of all threads: float32 multiply-adds on registers alone.
double peak_f32_flops();

/// The same for bfloat16 dot products (AVX512_BF16); 0 where the machine has none.
double peak_bf16_flops();

/// Integer operations per second of all threads: dot products of bytes (AVX-512 VNNI or AVX-VNNI; in AVX2 a chain of
/// three instructions) on registers alone; 0 where the machine has none.
double peak_int8_ops();

/// The device under test, and one of its streams.
Device& device();
Stream& stream();

enum class Arithmetic { floats, integers };

struct Samples {
  std::vector<double> seconds;     ///< of the op
  std::vector<double> read_rates;  ///< bytes per second of the read loop, between its iterations
};

/// Sets the counters of `measure`.
void report(benchmark::State& state, double bytes, double flops, Arithmetic arithmetic, Samples samples);

/// Benchmarks `issue(ops, stream)`: the time of an iteration is that of the op on the stream's thread, without the
/// hand-over. Counters, from the median iteration, since other programs disturb the mean: GB/s and GFLOP/s, and what
/// per cent of the peaks of the same run they are (GOP/s and %int8 for integers); %read is of the median of a read loop
/// (read_GB/s) that takes turns with the op; best_GB/s is that of the fastest iteration.
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
