#include "bench/cuda/gpu.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_device.hpp"

namespace pagoda::kernels::bench {
namespace {

void must(const Status& status) {
  PAGODA_ASSERT(status.has_value(), status.error().message);
}

void upload(const Buffer& to, std::size_t offset, const Buffer& staging, std::size_t bytes) {
  gpu_stream().submit([&] {
    must(gpu().ops().copy(gpu_stream(), {staging.data(), to.as<std::byte>() + offset, bytes}));
  });
  gpu_stream().synchronize();
}

}  // namespace

Device& gpu() {
  static const std::shared_ptr<Device> device = [] {
    auto created = create_cuda_device(0);
    if (!created) {
      std::fprintf(stderr, "pagoda_cuda_bench: %s\n", created.error().message.c_str());
      std::exit(2);
    }
    return *created;
  }();
  return *device;
}

Stream& gpu_stream() {
  static const std::unique_ptr<Stream> stream = gpu().create_stream("bench").value();
  return *stream;
}

Buffer random_memory(std::int64_t bytes) {
  Buffer memory = gpu().allocate(static_cast<std::size_t>(bytes), MemoryKind::device).value();
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  const Buffer staging = gpu().allocate(kPiece, MemoryKind::host).value();
  std::uint32_t bits = 12345;
  for (std::size_t i = 0; i < kPiece / 4; ++i) {
    bits = bits * 1664525U + 1013904223U;
    // Exponents near 1 in both halves, so that no value is subnormal or NaN in any type.
    staging.as<std::uint32_t>()[i] = (bits & 0x83FF83FFU) | 0x3C003C00U;
  }
  for (std::size_t at = 0; at < memory.bytes(); at += kPiece) {
    upload(memory, at, staging, std::min(kPiece, memory.bytes() - at));
  }
  return memory;
}

Buffer device_copy(const void* values, std::size_t bytes) {
  Buffer memory = gpu().allocate(bytes, MemoryKind::device).value();
  const Buffer staging = gpu().allocate(bytes, MemoryKind::host).value();
  std::memcpy(staging.data(), values, bytes);
  upload(memory, 0, staging, bytes);
  return memory;
}

void measure(benchmark::State& state, double bytes, double flops, int repetitions, Issue issue,
             const std::function<Status(const Ops&, Stream&)>& op) {
  static std::uint64_t next_key = 1;
  const std::uint64_t key = next_key++;
  Stream& stream = gpu_stream();
  const auto repeat = [&]() -> Status {
    Status status;
    for (int i = 0; i < repetitions && status; ++i) status = op(gpu().ops(), stream);
    return status;
  };
  const auto once = [&] {
    stream.submit([&] { must(issue == Issue::graph ? stream.replay(key, repeat) : repeat()); });
    stream.synchronize();
    must(stream.status());
  };
  constexpr int kWarmUp = 3;
  for (int i = 0; i < kWarmUp; ++i) once();
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    once();
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.SetIterationTime(elapsed);
    seconds.push_back(elapsed / repetitions);
  }
  if (seconds.empty()) return;
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  const double median = seconds[seconds.size() / 2];
  state.counters["us"] = median * 1e6;
  if (bytes > 0) state.counters["GB/s"] = bytes / median / 1e9;
  if (flops > 0) state.counters["TFLOP/s"] = flops / median / 1e12;
}

}  // namespace pagoda::kernels::bench
