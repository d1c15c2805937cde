#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

class BlockState;

struct GridShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

/// Runs kernels on the calling thread: one thread block after the other, each thread of a block as a fiber that runs
/// until it must wait for other threads. The seed shuffles which ready fiber, and which block, runs next (0: in order).
/// One object belongs to one thread.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// Returns "" or the defect of the kernel: threads that wait for threads that never arrive, collectives that differ
  /// between lanes, a trap, or dynamic shared memory written behind its end.
  std::string run(const GridShape& shape, std::uint64_t seed, const std::function<void()>& thread);

 private:
  std::unique_ptr<BlockState> state_;
};

}  // namespace cuda_emulator
