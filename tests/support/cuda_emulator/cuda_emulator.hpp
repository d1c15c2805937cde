#pragma once

/// Functions of the emulated device for tests, beside the toolkit's functions. All functions are thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_emulator {

struct Options {
  std::uint64_t seed = 0;  ///< seed of the order of blocks and threads; 0 = ascending
  int delay_us = 0;        ///< delay before each piece of work of a stream, so that the host is ahead
  std::size_t memory_bytes = std::size_t{4} << 30;
  int num_devices = 1;  ///< 0 or 1
};

/// Applies to work that is enqueued from now on.
void set_options(const Options& options);
Options options();

/// Returns the first defect of a kernel or a copy since the last reset; "" = none. After a defect every call returns
/// its error, like a GPU's sticky errors.
std::string problem();
/// Waits for all streams and forgets the problem.
void reset();

/// Returns the number of kernels that ran since the process began.
std::size_t num_kernels_run();

}  // namespace cuda_emulator
