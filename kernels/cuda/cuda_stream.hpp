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
/// Errors: what returns nothing (record, wait, on_complete) keeps the first error in the stream; every later op and
/// replay returns it, and so does status(). Callbacks run and events count as finished all the same, so nobody waits
/// for ever; who reads results asks status() first. An error of the device itself (a fault in a kernel) lasts: the
/// process must be restarted to use that device again.
class CudaStream final : public Stream {
 public:
  /// A stream of device `index`.
  static Result<std::unique_ptr<CudaStream>> create(int index, const std::string& name);
  /// Waits for everything enqueued, callbacks included.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// Runs `issue` at once, with the device as the calling thread's current one.
  void submit(std::function<void()> issue) override;

  /// The first call for a key issues directly, so that scratch memory and libraries are in place; the second captures
  /// the ops into a graph, which it and all later calls launch. A failure while capturing ends the capture and is
  /// returned; the next call captures again. Beyond kMaxGraphs keys ops are issued directly. Captured ops must not use
  /// staged memory.
  Status replay(std::uint64_t key, const std::function<Status()>& issue) override;
  static constexpr std::size_t kMaxGraphs = 512;

  void on_complete(std::function<void()> callback) override;
  Status status() const override;
  std::shared_ptr<Event> record() override;
  void wait(std::shared_ptr<Event> event) override;
  void synchronize() override;

  // --- For ops ------------------------------------------------------------------------------------------------------

  cudaStream_t get() const { return stream_; }
  /// Makes the stream's device the calling thread's current one; returns status().
  Status activate();

  /// Pinned host memory and as much device memory for the data of one op: write `host`, then upload(). Both may be used
  /// until the ops enqueued before the next call of stage() have run, so an op calls it once and divides what it gets.
  /// Errors: out_of_memory; inside a capture (internal).
  Result<Staged> stage(std::size_t bytes);
  /// Enqueues the copy of `host` to `device`.
  Status upload(const Staged& staged);

  /// Device memory for one op, of any contents, aligned to 256 bytes: the next op on this stream may get the same.
  /// Errors: out_of_memory; growing inside a capture (internal), which the direct first call of replay() prevents.
  Result<std::byte*> scratch(std::size_t bytes);

  /// [kCounters] integers on the device that are 0 between the ops of the stream: who changes one sets it back. Made by
  /// the first call, which must not be inside a capture. Errors: out_of_memory.
  Result<std::int32_t*> counters();
  static constexpr std::size_t kCounters = 32768;

  /// The stream's cuBLASLt handle and workspace, made by the first call, which must not be inside a capture.
  Result<Gemm*> gemm();

 private:
  CudaStream(int index, cudaStream_t stream, const std::string& name);
  void keep(const Status& status);
  Result<cudaGraphExec_t> capture(const std::function<Status()>& issue);

  /// A replayed key; without `exec` it was issued once.
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
  std::vector<Buffer> outgrown_;  ///< enqueued work and graphs still use them
  std::unordered_map<std::uint64_t, Graph> graphs_;
  CompletionThread completions_;
};

/// The CudaStream behind a stream of the CUDA device's ops.
CudaStream& cuda_stream(Stream& stream);

}  // namespace pagoda::kernels::cuda
