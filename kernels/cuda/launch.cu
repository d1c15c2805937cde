#include <array>
#include <atomic>

#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kFirstMajor = 9;

/// Returns whether a device of kFirstMajor runs code that was compiled for it and thus contains the waits.
constexpr bool compiled_for_it() {
#ifdef __CUDA_ARCH_LIST__
  for (const int arch : {__CUDA_ARCH_LIST__}) {
    if (arch >= kFirstMajor * 100) return true;
  }
  return false;
#else
  return true;  // the emulator
#endif
}

}  // namespace

bool starts_early() {
  if constexpr (!compiled_for_it()) return false;
  enum : signed char { unknown, no, yes };
  constexpr int kMaxDevices = 64;
  static std::array<std::atomic<signed char>, kMaxDevices> known{};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMaxDevices) return false;
  auto& answer = known[static_cast<std::size_t>(device)];
  if (answer.load(std::memory_order_relaxed) == unknown) {
    int major = 0;
    const bool asked = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess;
    answer.store(asked && major >= kFirstMajor ? yes : no, std::memory_order_relaxed);
  }
  return answer.load(std::memory_order_relaxed) == yes;
}

}  // namespace pagoda::kernels::cuda
