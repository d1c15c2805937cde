#include "tests/support/split_memory_device.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "tests/support/split_ops.hpp"
#include "tests/support/split_stream.hpp"

namespace pagoda::test {
namespace {

thread_local bool inside_callback = false;

}  // namespace

void SplitStream::submit(std::function<void()> issue) {
  PAGODA_ASSERT(!submitting_, "submit is not called inside submit");
  submitting_ = true;
  issue();
  submitting_ = false;
}

Status SplitStream::replay(std::uint64_t key, const std::function<Status()>& issue) {
  PAGODA_ASSERT(submitting_, "replay is called inside submit");
  if (const auto found = records_.find(key); found != records_.end()) {
    ++device_.num_replays_;
    for (const Op& op : found->second) run_later(op);
    return {};
  }
  std::vector<Op> ops;
  recording_ = &ops;
  Status status = issue();
  recording_ = nullptr;
  if (!status) return status;
  ++device_.num_records_;
  for (const Op& op : ops) run_later(op);
  records_.emplace(key, std::move(ops));
  return {};
}

void SplitStream::on_complete(std::function<void()> callback) {
  queue_->on_complete([callback = std::move(callback)] {
    inside_callback = true;
    callback();
    inside_callback = false;
  });
}

Status SplitStream::status() const {
  if (broken_) return fail(ErrorCode::internal, "the stream was told to break");
  const auto error = device_.late_error();
  return error ? Status(fail(ErrorCode::internal, *error)) : Status();
}

Status SplitStream::enqueue(Op op, bool may_record) {
  PAGODA_ASSERT(submitting_, "ops are issued inside submit");
  PAGODA_ASSERT(!inside_callback, "callbacks issue no ops");
  if (device_.takes_failure()) return fail(ErrorCode::internal, "the device was told to fail");
  if (Status failed = status(); !failed) return failed;
  if (recording_ != nullptr) {
    if (!may_record) return fail(ErrorCode::internal, "an op that reads host memory cannot be recorded");
    recording_->push_back(std::move(op));
  } else {
    run_later(std::move(op));
  }
  return {};
}

void SplitStream::run_later(Op op) {
  queue_->submit([this, op = std::move(op)] {
    device_.delay_now_and_then();
    if (!status()) return;
    if (device_.takes_breakage(name_)) {
      broken_ = true;
      return;
    }
    if (const Status status = op(*queue_); !status) device_.note_late_error(status.error().message);
  });
}

SplitMemoryDevice::SplitMemoryDevice(const Options& options)
    : cpu_(kernels::create_cpu_device({.num_threads = options.num_threads, .isa = options.isa}).value()),
      memory_(options.device_bytes),
      ops_(std::make_unique<SplitOps>(cpu_->ops(), memory_)),
      random_(options.seed) {}

SplitMemoryDevice::~SplitMemoryDevice() = default;

Result<kernels::Buffer> SplitMemoryDevice::allocate(std::size_t bytes, kernels::MemoryKind kind) {
  if (const auto error = late_error()) return fail(ErrorCode::internal, *error);
  return kind == kernels::MemoryKind::device ? memory_.allocate(bytes) : cpu_->allocate(bytes, kind);
}

Result<std::unique_ptr<kernels::Stream>> SplitMemoryDevice::create_stream(const std::string& name) {
  if (const auto error = late_error()) return fail(ErrorCode::internal, *error);
  auto queue = cpu_->create_stream(name);
  if (!queue) return fail(std::move(queue.error()));
  return std::make_unique<SplitStream>(*this, name, std::move(*queue));
}

const kernels::Ops& SplitMemoryDevice::ops() const {
  return *ops_;
}

std::size_t SplitMemoryDevice::available_bytes(kernels::MemoryKind kind) const {
  return kind == kernels::MemoryKind::device ? memory_.available() : cpu_->available_bytes(kind);
}

std::optional<std::string> SplitMemoryDevice::late_error() const {
  const std::lock_guard lock(mutex_);
  return late_error_;
}

void SplitMemoryDevice::note_late_error(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!late_error_) late_error_ = message;
}

bool SplitMemoryDevice::takes_failure() {
  return ops_until_failure_ >= 0 && ops_until_failure_-- == 0;
}

void SplitMemoryDevice::break_after(std::string stream_name, int count, bool only_the_stream, int times) {
  const std::lock_guard lock(mutex_);
  breakage_ = {std::move(stream_name), count, count, only_the_stream, times};
}

int SplitMemoryDevice::num_streams_broken() const {
  const std::lock_guard lock(mutex_);
  return num_streams_broken_;
}

bool SplitMemoryDevice::takes_breakage(const std::string& stream_name) {
  const std::lock_guard lock(mutex_);
  if (breakage_.times == 0 || stream_name != breakage_.stream_name || breakage_.ops_left-- > 0) return false;
  breakage_.ops_left = breakage_.count;
  --breakage_.times;
  ++num_streams_broken_;
  if (!breakage_.only_the_stream && !late_error_) late_error_ = "the device was told to break";
  return true;
}

void SplitMemoryDevice::delay_now_and_then() {
  constexpr std::uint64_t kOneIn = 32;
  constexpr auto kDelay = std::chrono::microseconds(100);
  const std::uint64_t state = random_.fetch_add(0x9e3779b97f4a7c15U);
  if ((state * 0xbf58476d1ce4e5b9U >> 40U) % kOneIn == 0) std::this_thread::sleep_for(kDelay);
}

}  // namespace pagoda::test
