#pragma once

/// What tests may ask of the emulated device beside the toolkit's functions. All functions are thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_emulator {

struct Options {
  std::uint64_t seed = 0;  ///< of the order of blocks and threads; 0 = ascending
  int delay_us = 0;        ///< each piece of work of a stream begins so late, so that the host is ahead
  std::size_t memory_bytes = std::size_t{4} << 30;
  int num_devices = 1;  ///< 0 or 1
};

/// Holds for what is enqueued from now on.
void set_options(const Options& options);
Options options();

/// The first defect of a kernel or a copy since the last reset, "" = none. It is the error of every call from then on,
/// as a GPU's sticky errors are.
std::string problem();
/// Waits for all streams and forgets the problem.
void reset();

/// Kernels that ran since the process began.
std::size_t num_kernels_run();

}  // namespace cuda_emulator
