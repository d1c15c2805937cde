#include "bench/kernels/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include <benchmark/benchmark.h>

#include "kernels/cpu/isa.hpp"
#include "kernels/thread_pool.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagoda::kernels::bench {
namespace {

int num_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Returns the instruction set of the ops and of the peaks: PAGODA_BENCH_ISA, or the machine's fastest.
CpuIsa isa() {
  static const CpuIsa the_isa = [] {
    const char* const name = std::getenv("PAGODA_BENCH_ISA");
    return choose_isa(name == nullptr ? "" : name).value();
  }();
  return the_isa;
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the shortest time of several repetitions, because other programs only make the work slower.
double best_seconds_of(const auto& work) {
  constexpr int kRepetitions = 100;
  double best = seconds_of(work);
  for (int i = 1; i < kRepetitions; ++i) best = std::min(best, seconds_of(work));
  return best;
}

ThreadPool& threads() {
  static ThreadPool pool(num_threads());
  return pool;
}

#if defined(__x86_64__)
constexpr std::int64_t kLoops = 200'000;
constexpr int kChains = 24;  // number of independent sums, enough to hide the latency of each

// Registers may hold any values, and subnormal numbers are slow: the factors are set to zero.
__attribute__((target("avx512f"))) void multiply_add_512() {
  asm volatile("vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31" ::: "zmm30", "zmm31");
  for (std::int64_t i = 0; i < kLoops; ++i) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
        "vfmadd231ps %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr" ::
            : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12",
              "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23");
  }
}

__attribute__((target("avx512f"))) void dot_bf16_512() {
  asm volatile("vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31" ::: "zmm30", "zmm31");
  for (std::int64_t i = 0; i < kLoops; ++i) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr" ::
            : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12",
              "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23");
  }
}

__attribute__((target("avx512f,avx512vnni"))) void dot_int8_512() {
  for (std::int64_t i = 0; i < kLoops; ++i) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
        "vpdpbusd %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr" ::
            : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12",
              "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23");
  }
}

__attribute__((target("avx2"))) void dot_int8_256() {
  for (std::int64_t i = 0; i < kLoops; ++i) {
    for (int half = 0; half < 2; ++half) {
      asm volatile(
          ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
          "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm\\r\n"
          ".endr" ::
              : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11");
    }
  }
}

__attribute__((target("avx2,fma"))) void multiply_add_256() {
  asm volatile("vpxor %%ymm14, %%ymm14, %%ymm14\nvpxor %%ymm15, %%ymm15, %%ymm15" ::: "ymm14", "ymm15");
  for (std::int64_t i = 0; i < kLoops; ++i) {
    for (int half = 0; half < 2; ++half) {
      asm volatile(
          ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
          "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r\n"
          ".endr" ::
              : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11");
    }
  }
}

/// Multiplies bytes without VNNI: pairs of products into 16 bits, pairs of these into 32 bits, and a sum.
__attribute__((target("avx2"))) void multiply_add_bytes_256() {
  for (std::int64_t i = 0; i < kLoops; ++i) {
    for (int third = 0; third < 3; ++third) {
      asm volatile(
          ".irp r,0,1,2,3,4,5,6,7\n"
          "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n"
          "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n"
          "vpaddd %%ymm12, %%ymm\\r, %%ymm\\r\n"
          ".endr" ::
              : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm12");
    }
  }
}

constexpr std::int64_t kTileRatio = 32;  // a product of tiles takes this many times as long as another instruction
constexpr std::int64_t kTileLoops = kLoops * kChains / 4 / kTileRatio;

/// Runs `instruction` on four independent tiles of 16 rows of 64 bytes. The tiles are zero.
#define PAGODA_TILE_LOOP(name, instruction)                                                              \
  __attribute__((target("amx-tile"))) void name() {                                                      \
    struct alignas(64) {                                                                                 \
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};                                        \
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};                                    \
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};                                          \
    } const shapes;                                                                                      \
    asm volatile("ldtilecfg %0" ::"m"(shapes));                                                          \
    for (std::int64_t i = 0; i < kTileLoops; ++i) {                                                      \
      asm volatile(instruction " %tmm6, %tmm4, %tmm0\n" instruction " %tmm7, %tmm4, %tmm1\n" instruction \
                               " %tmm6, %tmm5, %tmm2\n" instruction " %tmm7, %tmm5, %tmm3");             \
    }                                                                                                    \
    asm volatile("tilerelease");                                                                         \
  }
PAGODA_TILE_LOOP(tile_dot_int8, "tdpbsud")
PAGODA_TILE_LOOP(tile_dot_bf16, "tdpbf16ps")
#undef PAGODA_TILE_LOOP

double flops_of(void (*loop)(), double flops_per_instruction) {
  const double seconds = best_seconds_of([&] { threads().parallel_for(num_threads(), [&](std::int64_t) { loop(); }); });
  return static_cast<double>(kLoops) * kChains * flops_per_instruction * num_threads() / seconds;
}
#endif

double measure_f32_flops() {
#if defined(__x86_64__)
  if (isa() >= CpuIsa::avx512) return flops_of(multiply_add_512, 32);
  if (isa() >= CpuIsa::avx2) return flops_of(multiply_add_256, 16);
#endif
  return 0;
}

double measure_bf16_flops() {
#if defined(__x86_64__)
  if (isa() == CpuIsa::avx512_amx) return flops_of(tile_dot_bf16, 16.0 * 16 * 32 * 2 / kTileRatio);
  if (isa() == CpuIsa::avx512_bf16) return flops_of(dot_bf16_512, 64);
#endif
  return 0;
}

double measure_int8_ops() {
#if defined(__x86_64__)
  if (isa() == CpuIsa::avx512_amx) return flops_of(tile_dot_int8, 16.0 * 16 * 64 * 2 / kTileRatio);
  if (isa() >= CpuIsa::avx512_vnni) return flops_of(dot_int8_512, 128);
  if (isa() == CpuIsa::avx_vnni) return flops_of(dot_int8_256, 64);
  if (isa() == CpuIsa::avx2) return flops_of(multiply_add_bytes_256, 64);
#endif
  return 0;
}

/// Reads `streams` pieces side by side, each prefetched well before it is used. The hardware prefetcher stops at the
/// end of a page and leaves a quarter of the bandwidth unused.
template <int streams>
void read_streams(const std::uint64_t* words, std::size_t words_per_stream) {
  constexpr std::size_t kLineWords = 8;
  constexpr std::size_t kAheadWords = 2048 / sizeof(std::uint64_t);
  std::uint64_t sums[streams][kLineWords] = {};
  for (std::size_t i = 0; i < words_per_stream; i += kLineWords) {
    for (int s = 0; s < streams; ++s) {
      const std::uint64_t* line = words + static_cast<std::size_t>(s) * words_per_stream + i;
      __builtin_prefetch(line + kAheadWords, 0, 3);
      for (std::size_t j = 0; j < kLineWords; ++j) sums[s][j] |= line[j];
    }
  }
  benchmark::DoNotOptimize(sums);
}

/// A buffer larger than all caches, read in slices. Each slice is so short that some slices run undisturbed.
class ReadLoop {
 public:
  ReadLoop() : buffer_(device().allocate(kBytes, MemoryKind::device).value()) {
    std::fill_n(buffer_.as<std::uint64_t>(), kBytes / 8, 1);
    for (std::size_t way = 0; way < std::size(kReads); ++way) {
      for (std::size_t slice = 0; slice < kBytes / kSliceBytes; ++slice) {
        const double rate = next_slice(way);
        if (rate <= best_) continue;
        best_ = rate;
        best_way_ = way;
      }
    }
  }

  /// Returns bytes per second, the best of many slices and of several numbers of streams.
  double best() const { return best_; }
  /// Returns the rate of the next slice.
  double now() { return next_slice(best_way_); }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  static constexpr std::size_t kSliceBytes = std::size_t{1} << 25;
  static constexpr std::size_t kTaskBytes = std::size_t{1} << 20;
  static constexpr int kStreams[] = {1, 4, 16};
  static constexpr void (*kReads[])(const std::uint64_t*, std::size_t) = {read_streams<1>, read_streams<4>,
                                                                          read_streams<16>};

  double next_slice(std::size_t way) {
    const std::byte* slice = buffer_.as<std::byte>() + at_;
    at_ = (at_ + kSliceBytes) % kBytes;
    const double seconds = seconds_of([&] {
      threads().parallel_for(kSliceBytes / kTaskBytes, [&](std::int64_t task) {
        const auto* words =
            reinterpret_cast<const std::uint64_t*>(slice) + task * static_cast<std::int64_t>(kTaskBytes / 8);
        kReads[way](words, kTaskBytes / 8 / static_cast<std::size_t>(kStreams[way]));
      });
    });
    return static_cast<double>(kSliceBytes) / seconds;
  }

  Buffer buffer_;
  std::size_t at_ = 0;
  double best_ = 0;
  std::size_t best_way_ = 0;
};

ReadLoop& read_loop() {
  static ReadLoop loop;
  return loop;
}

void report_peaks(benchmark::State& state) {
  for (auto _ : state) {
    state.counters["read_GB/s"] = peak_read_bytes_per_second() / 1e9;
    state.counters["f32_GFLOP/s"] = peak_f32_flops() / 1e9;
    state.counters["bf16_GFLOP/s"] = peak_bf16_flops() / 1e9;
    state.counters["int8_GOP/s"] = peak_int8_ops() / 1e9;
  }
}
BENCHMARK(report_peaks)->Name("peaks")->Iterations(1);

/// Reports the rate of memory at this moment: the median of slices that take about half a second.
void report_read(benchmark::State& state) {
  constexpr int kSlices = 500;
  std::vector<double> rates;
  for (auto _ : state) {
    for (int i = 0; i < kSlices; ++i) rates.push_back(read_loop().now());
  }
  std::sort(rates.begin(), rates.end());
  state.counters["read_GB/s"] = rates[rates.size() / 2] / 1e9;
}
BENCHMARK(report_read)->Name("read")->Iterations(1);

}  // namespace

double peak_read_bytes_per_second() {
  return read_loop().best();
}

double read_bytes_per_second_now() {
  // The op and the loop have threads of their own. These share the cores, and look for more work for a while
  // (ThreadPool).
  constexpr auto kUntilTheyPark = std::chrono::microseconds(400);
  std::this_thread::sleep_for(kUntilTheyPark);
  const double rate = read_loop().now();
  std::this_thread::sleep_for(kUntilTheyPark);
  return rate;
}

double peak_f32_flops() {
  static const double peak = measure_f32_flops();
  return peak;
}

double peak_bf16_flops() {
  static const double peak = measure_bf16_flops();
  return peak;
}

double peak_int8_ops() {
  static const double peak = measure_int8_ops();
  return peak;
}

Device& device() {
  static const std::shared_ptr<Device> the_device = create_cpu_device({.isa = std::string(to_string(isa()))}).value();
  return *the_device;
}

Stream& stream() {
  static const std::unique_ptr<Stream> the_stream = device().create_stream("bench").value();
  return *the_stream;
}

void report(benchmark::State& state, double bytes, double flops, Arithmetic arithmetic, Samples samples) {
  std::vector<double>& seconds = samples.seconds;
  std::sort(seconds.begin(), seconds.end());
  std::sort(samples.read_rates.begin(), samples.read_rates.end());
  const double median = seconds[seconds.size() / 2];
  const double read_rate = samples.read_rates[samples.read_rates.size() / 2];
  state.counters["GB/s"] = bytes / median / 1e9;
  state.counters["read_GB/s"] = read_rate / 1e9;
  state.counters["%read"] = 100 * bytes / median / read_rate;
  state.counters["best_GB/s"] = bytes / seconds.front() / 1e9;
  if (arithmetic == Arithmetic::integers) {
    state.counters["GOP/s"] = flops / median / 1e9;
    state.counters["best_GOP/s"] = flops / seconds.front() / 1e9;
    if (peak_int8_ops() > 0) state.counters["%int8"] = 100 * flops / median / peak_int8_ops();
    return;
  }
  state.counters["GFLOP/s"] = flops / median / 1e9;
  state.counters["best_GFLOP/s"] = flops / seconds.front() / 1e9;
  state.counters["%f32"] = 100 * flops / median / peak_f32_flops();
  if (peak_bf16_flops() > 0) state.counters["%bf16"] = 100 * flops / median / peak_bf16_flops();
}

}  // namespace pagoda::kernels::bench
