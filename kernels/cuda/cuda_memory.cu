#include <utility>

#include "kernels/cuda/block_runs.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/cuda_memory.hpp"

namespace pagoda::kernels::cuda {
namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool finished() const override { return cudaEventQuery(event_) == cudaSuccess; }
  void synchronize() override { cudaEventSynchronize(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void submit(std::function<void()> issue) override { issue(); }

  void on_complete(std::function<void()> callback) override {
    auto* kept = new std::function<void()>(std::move(callback));
    const cudaError_t launched = cudaLaunchHostFunc(
        stream_,
        [](void* data) {
          auto* call = static_cast<std::function<void()>*>(data);
          (*call)();
          delete call;
        },
        kept);
    PAGODA_ASSERT(launched == cudaSuccess, cudaGetErrorString(launched));
  }

  std::shared_ptr<Event> record() override {
    cudaEvent_t event = nullptr;
    cudaError_t result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (result == cudaSuccess) result = cudaEventRecord(event, stream_);
    PAGODA_ASSERT(result == cudaSuccess, cudaGetErrorString(result));
    return std::make_shared<CudaEvent>(event);
  }

  void wait(std::shared_ptr<Event> event) override {
    const auto* recorded = dynamic_cast<const CudaEvent*>(event.get());
    PAGODA_ASSERT(recorded != nullptr, "a CUDA stream waits for events of CUDA streams");
    const cudaError_t result = cudaStreamWaitEvent(stream_, recorded->get(), 0);
    PAGODA_ASSERT(result == cudaSuccess, cudaGetErrorString(result));
  }

  void synchronize() override { cudaStreamSynchronize(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

}  // namespace

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<Buffer> allocate(std::size_t bytes, MemoryKind kind) {
  void* data = nullptr;
  const bool on_device = kind == MemoryKind::device;
  Status status = on_device ? check(cudaMalloc(&data, bytes), "cudaMalloc")
                            : check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  if (!status) {
    return fail(status.error().code, std::to_string(bytes) + " bytes: " + status.error().message);
  }
  Buffer buffer(data, bytes, [on_device](void* owned, std::size_t) {
    if (on_device) {
      cudaFree(owned);
    } else {
      cudaFreeHost(owned);
    }
  });
  status = check(cudaMemset(data, 0, bytes), "cudaMemset");
  if (!status) return fail(status.error());
  return buffer;
}

Result<std::unique_ptr<Stream>> create_stream() {
  cudaStream_t stream = nullptr;
  const Status status = check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (!status) return fail(status.error());
  return std::unique_ptr<Stream>(new CudaStream(stream));
}

Status move_blocks(Stream& stream, const MoveBlocksParams& params) {
  const auto* cuda_stream = dynamic_cast<const CudaStream*>(&stream);
  PAGODA_ASSERT(cuda_stream != nullptr, "move_blocks of CUDA runs on CUDA streams");
  Status status;
  for_each_block_run(params.from, params.to, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    if (!status) return;
    status = check(
        cudaMemcpyAsync(params.to_base + to * params.block_bytes, params.from_base + from * params.block_bytes,
                        static_cast<std::size_t>(count * params.block_bytes), cudaMemcpyDefault, cuda_stream->get()),
        "cudaMemcpyAsync");
  });
  return status;
}

}  // namespace pagoda::kernels::cuda
