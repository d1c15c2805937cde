#include <memory>
#include <utility>

#include "cuda_runtime_api.h"
#include "tests/support/cuda_emulator/device_memory.hpp"
#include "tests/support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

cudaError_t result(cudaError_t error) {
  const cudaError_t sticky = sticky_error();
  return sticky != cudaSuccess ? sticky : error;
}

/// Waiting for a stream that is being captured, or querying it, ends the capture.
bool breaks_capture(cudaStream_t stream) {
  EmulatedStream& asked = stream_of(stream);
  if (!asked.capturing()) return false;
  asked.break_capture();
  return true;
}

std::shared_ptr<Moment> moment_of(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->moment;
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  const cudaError_t created = result(cudaSuccess);
  if (created == cudaSuccess) *stream = new EmulatedStream;
  return created;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  delete stream;
  return result(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (breaks_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  stream_of(stream).drain();
  if (!all_guards_are_whole()) report_problem(cudaErrorIllegalAddress, "memory was written outside its allocation");
  return result(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (breaks_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  return result(stream_of(stream).idle() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (breaks_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  if (const auto moment = moment_of(event); moment != nullptr) {
    stream_of(stream).add([moment](BlockRunner&) { moment->wait(); });
  }
  return result(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream_of(stream).add([=](BlockRunner&) { function(data); });
  return result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  const cudaError_t created = result(cudaSuccess);
  if (created == cudaSuccess) *event = new EmulatedEvent;
  return created;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return result(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (breaks_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  auto moment = stream_of(stream).add_moment();
  const std::lock_guard lock(event->mutex);
  event->moment = std::move(moment);
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto moment = moment_of(event);
  return result(moment == nullptr || moment->reached() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto moment = moment_of(event); moment != nullptr) moment->wait();
  return result(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto first = moment_of(start);
  const auto last = moment_of(end);
  if (first == nullptr || last == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (!first->reached() || !last->reached()) return result(cudaErrorNotReady);
  *milliseconds = static_cast<float>((last->seconds() - first->seconds()) * 1e3);
  return result(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) return result(cudaErrorStreamCaptureUnsupported);
  return result(stream->begin_capture());
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return result(stream->end_capture(graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const EmulatedStream& asked = stream_of(stream);
  *status = !asked.capturing()          ? cudaStreamCaptureStatusNone
            : asked.capture_is_broken() ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
  return result(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(current, *mode);
  return result(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraphExec{graph->nodes};
  return result(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->nodes.size();
  return result(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return result(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const cudaError_t launched = result(cudaSuccess);  // without the errors of the graph's own kernels
  for (const Work& node : exec->nodes) stream_of(stream).add(node);
  return launched;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return result(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return result(cudaSuccess);
}

}  // namespace cuda_emulator
