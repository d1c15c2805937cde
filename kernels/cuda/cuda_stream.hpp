#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cuda/completion_thread.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/staging_ring.hpp"
#include "kernels/device.hpp"

namespace pagoda::kernels::cuda {

/// A CUDA stream. Ops enqueue on the calling thread and never wait for the device.
///
/// Errors: the functions that return nothing (record, wait, on_complete) keep the first error in the stream; every
/// later op and replay returns it, and so does status(). Callbacks still run and events still count as finished, so
/// that no caller waits for ever; check status() before you read results. An error of the device itself (a fault in a
/// kernel) is permanent: the process must be restarted to use that device again.
class CudaStream final : public Stream {
 public:
  /// Creates a stream of device `index`.
  static Result<std::unique_ptr<CudaStream>> create(int index, const std::string& name);
  /// Waits for all enqueued work, including callbacks.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// Runs `issue` immediately, with the stream's device as the current device of the calling thread.
  void submit(std::function<void()> issue) override;

  /// The first call for a key issues the ops directly, which allocates scratch memory and loads libraries. The second
  /// call captures the ops into a graph, which this call and all later calls launch. A failure while capturing ends the
  /// capture and is returned; the next call captures again. Beyond kMaxGraphs keys, ops are issued directly. Captured
  /// ops must not use staged memory.
  Status replay(std::uint64_t key, const std::function<Status()>& issue) override;
  static constexpr std::size_t kMaxGraphs = 1024;

  void on_complete(std::function<void()> callback) override;
  Status status() const override;
  std::shared_ptr<Event> record() override;
  void wait(std::shared_ptr<Event> event) override;
  void synchronize() override;

  // --- For ops ------------------------------------------------------------------------------------------------------

  cudaStream_t get() const { return stream_; }
  /// Makes the stream's device the current device of the calling thread; returns status().
  Status activate();

  /// Returns pinned host memory and as much device memory for the data of one op: write `host`, then call upload().
  /// Both may be used until the ops enqueued before the next call of stage() have run, so an op calls stage() once and
  /// divides the memory. Errors: out_of_memory; inside a capture (internal).
  Result<Staged> stage(std::size_t bytes);
  /// Enqueues the copy of `host` to `device`.
  Status upload(const Staged& staged);

  /// Returns device memory for one op, with any contents, aligned to 256 bytes. The next op on this stream may get the
  /// same memory. Errors: out_of_memory; growing inside a capture (internal), which the direct first call of replay()
  /// prevents.
  Result<std::byte*> scratch(std::size_t bytes);

  /// Returns [kCounters] integers on the device that are 0 between the ops of the stream: an op that changes a counter
  /// resets it to 0. The first call allocates them and must not be inside a capture. Errors: out_of_memory.
  Result<std::int32_t*> counters();
  static constexpr std::size_t kCounters = 32768;

  /// Returns the stream's cuBLASLt handle and workspace. The first call creates them and must not be inside a capture.
  Result<Gemm*> gemm();

 private:
  CudaStream(int index, cudaStream_t stream, const std::string& name);
  void keep(const Status& status);
  Result<cudaGraphExec_t> capture(const std::function<Status()>& issue);

  /// Graph of a replayed key. `exec` is null while the key has only been issued directly.
  struct Graph {
    cudaGraphExec_t exec = nullptr;
  };

  int index_;
  cudaStream_t stream_;
  mutable std::mutex mutex_;
  Status status_;
  bool capturing_ = false;
  StagingRing ring_;
  Buffer scratch_;
  Buffer counters_;
  std::unique_ptr<Gemm> gemm_;
  std::vector<Buffer> outgrown_;  ///< buffers that enqueued work and graphs still use
  std::unordered_map<std::uint64_t, Graph> graphs_;
  CompletionThread completions_;
};

/// Returns `stream`, which was passed to an op of the CUDA device, as a CudaStream.
CudaStream& cuda_stream(Stream& stream);

}  // namespace pagoda::kernels::cuda
