#pragma once

/// What the machine can do at most, measured once per run: the yardsticks of the per-op benchmarks.

#include <memory>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::bench {

/// Bytes per second that all threads together read from a buffer much larger than the caches.
double peak_read_bytes_per_second();

/// Floating-point operations per second of all threads: float32 multiply-adds on registers alone.
double peak_f32_flops();

/// The same for bfloat16 dot products (AVX512_BF16); 0 where the machine has none.
double peak_bf16_flops();

/// The device under test, and one of its streams.
Device& device();
Stream& stream();

/// Runs `issue(ops, stream)` on the stream, and waits. Ends the program when an op fails.
template <class Issue>
void run(const Issue& issue) {
  Status status;
  stream().submit([&] { status = issue(device().ops(), stream()); });
  stream().synchronize();
  PAGODA_ASSERT(status.has_value(), status.error().message);
}

}  // namespace pagoda::kernels::bench
