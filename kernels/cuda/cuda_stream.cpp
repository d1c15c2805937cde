#include "kernels/cuda/cuda_stream.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/cuda_memory.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Event of a CUDA stream. The CUDA event is null if it could not be recorded; then finished() is true and no call
/// waits.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool finished() const override { return event_ == nullptr || cudaEventQuery(event_) != cudaErrorNotReady; }
  void synchronize() override {
    if (event_ != nullptr) cudaEventSynchronize(event_);
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

/// Creates an event and records it on the stream.
Result<cudaEvent_t> record_event(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  Status status = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
                        "cudaEventCreateWithFlags");
  if (!status) return fail(status.error());
  status = check(cudaEventRecord(event, stream), "cudaEventRecord");
  if (!status) {
    cudaEventDestroy(event);
    return fail(status.error());
  }
  return event;
}

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::create(int index, const std::string& name) {
  Status status = check(cudaSetDevice(index), "cudaSetDevice");
  if (!status) return fail(status.error());
  cudaStream_t stream = nullptr;
  status = check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (!status) return fail(status.error());
  return std::unique_ptr<CudaStream>(new CudaStream(index, stream, name));
}

CudaStream::CudaStream(int index, cudaStream_t stream, const std::string& name)
    : index_(index), stream_(stream), completions_(index, name, [this](const Status& status) { keep(status); }) {}

CudaStream::~CudaStream() {
  synchronize();
  for (const auto& [key, graph] : graphs_) {
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  }
  cudaStreamDestroy(stream_);
}

Status CudaStream::activate() {
  const Status current = check(cudaSetDevice(index_), "cudaSetDevice");
  if (!current) keep(current);
  return status();
}

Status CudaStream::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void CudaStream::keep(const Status& status) {
  if (status) return;
  const std::lock_guard lock(mutex_);
  if (status_) status_ = status;
}

void CudaStream::submit(std::function<void()> issue) {
  static_cast<void>(activate());  // the ops return the error
  issue();
}

Status CudaStream::replay(std::uint64_t key, const std::function<Status()>& issue) {
  if (Status active = activate(); !active) return active;
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    Status issued = issue();
    if (issued && graphs_.size() < kMaxGraphs) graphs_.emplace(key, Graph{});
    return issued;
  }
  Graph& graph = found->second;
  if (graph.exec == nullptr) {
    const auto captured = capture(issue);
    if (!captured) return fail(captured.error());
    graph.exec = *captured;
  }
  return check(cudaGraphLaunch(graph.exec, stream_), "cudaGraphLaunch");
}

Result<cudaGraphExec_t> CudaStream::capture(const std::function<Status()>& issue) {
  Status status = check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  if (!status) return fail(status.error());
  capturing_ = true;
  const Status issued = issue();
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  status = check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  if (issued && status) status = check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (issued && status) return exec;
  cudaGetLastError();  // clears the error: a failed capture leaves the device unchanged
  return fail(issued ? status.error() : issued.error());
}

void CudaStream::on_complete(std::function<void()> callback) {
  static_cast<void>(activate());
  const auto event = record_event(stream_);
  if (!event) keep(fail(event.error()));
  completions_.add(event.value_or(nullptr), std::move(callback));
}

std::shared_ptr<Event> CudaStream::record() {
  static_cast<void>(activate());
  const auto event = record_event(stream_);
  if (!event) keep(fail(event.error()));
  return std::make_shared<CudaEvent>(event.value_or(nullptr));
}

void CudaStream::wait(std::shared_ptr<Event> event) {
  const auto* recorded = dynamic_cast<const CudaEvent*>(event.get());
  PAGODA_ASSERT(recorded != nullptr, "a CUDA stream waits for events of CUDA streams");
  static_cast<void>(activate());
  if (recorded->get() == nullptr) return;
  keep(check(cudaStreamWaitEvent(stream_, recorded->get(), 0), "cudaStreamWaitEvent"));
}

void CudaStream::synchronize() {
  static_cast<void>(activate());
  keep(check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
  completions_.drain();
}

Result<Staged> CudaStream::stage(std::size_t bytes) {
  if (capturing_) return fail(ErrorCode::internal, "an op that reads host memory cannot be part of a graph");
  return ring_.take(bytes, stream_);
}

Status CudaStream::upload(const Staged& staged) {
  return check(cudaMemcpyAsync(staged.device, staged.host, staged.bytes, cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync");
}

Result<std::byte*> CudaStream::scratch(std::size_t bytes) {
  if (bytes > scratch_.bytes()) {
    if (capturing_) return fail(ErrorCode::internal, "scratch memory cannot grow inside a graph");
    auto grown = allocate(std::max(bytes, 2 * scratch_.bytes()), MemoryKind::device);
    if (!grown) return fail(grown.error());
    outgrown_.push_back(std::exchange(scratch_, std::move(*grown)));
  }
  return scratch_.as<std::byte>();
}

Result<std::int32_t*> CudaStream::counters() {
  if (counters_.bytes() == 0) {
    if (capturing_) return fail(ErrorCode::internal, "a CUDA stream's counters cannot be made inside a graph");
    constexpr std::size_t kBytes = kCounters * sizeof(std::int32_t);
    auto made = allocate(kBytes, MemoryKind::device);
    if (!made) return fail(made.error());
    const Status zeroed = check(cudaMemsetAsync(made->data(), 0, kBytes, stream_), "cudaMemsetAsync");
    if (!zeroed) return fail(zeroed.error());
    counters_ = std::move(*made);
  }
  return counters_.as<std::int32_t>();
}

Result<Gemm*> CudaStream::gemm() {
  if (gemm_ == nullptr) {
    if (capturing_)
      return fail(ErrorCode::internal, "a CUDA stream's first matrix multiplication must not be captured");
    Result<std::unique_ptr<Gemm>> made = Gemm::create();
    if (!made) return fail(made.error());
    gemm_ = std::move(*made);
  }
  return gemm_.get();
}

CudaStream& cuda_stream(Stream& stream) {
  auto* found = dynamic_cast<CudaStream*>(&stream);
  PAGODA_ASSERT(found != nullptr, "CUDA ops run on CUDA streams");
  return *found;
}

}  // namespace pagoda::kernels::cuda
