#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/device.hpp"
#include "tests/support/split_memory.hpp"

namespace pagoda::test {

class SplitOps;

/// A device that behaves like a GPU but runs the CPU's ops, so that the engine can be tested against it on any machine:
///  - the host cannot access its memory, and ops refuse host memory;
///  - Stream::submit issues at once on the caller's thread, and the ops run later on a thread of the stream, sometimes
///    after a random delay: code that reads a result too early, or reuses memory too early, gets wrong data;
///  - Stream::replay runs the ops that were recorded for the key, and ignores the function that the caller passes;
///  - on_complete callbacks that issue ops, and ops outside submit, end the process;
///  - after an op that failed while it ran, no op runs any more, and no memory and no stream can be created. With
///    `only_the_stream`, break_after() makes only one stream fail.
class SplitMemoryDevice final : public kernels::Device {
 public:
  struct Options {
    int num_threads = 1;
    std::size_t device_bytes = std::size_t{4} << 30U;
    std::uint64_t seed = 1;  ///< seed of the delays
    std::string isa = {};    ///< see CpuDeviceOptions::isa
  };
  explicit SplitMemoryDevice(const Options& options);
  SplitMemoryDevice() : SplitMemoryDevice(Options{}) {}
  ~SplitMemoryDevice() override;

  kernels::DeviceKind kind() const override { return kernels::DeviceKind::cuda; }
  std::string description() const override { return "split memory over " + cpu_->description(); }
  Result<kernels::Buffer> allocate(std::size_t bytes, kernels::MemoryKind kind) override;
  Result<std::unique_ptr<kernels::Stream>> create_stream(const std::string& name) override;
  const kernels::Ops& ops() const override;
  std::size_t available_bytes(kernels::MemoryKind kind) const override;

  // Functions for tests. Thread-safe.

  /// Returns the error of the first op that failed while it ran, when the error could no longer be returned to its
  /// caller.
  std::optional<std::string> late_error() const;
  int num_records() const { return num_records_; }
  int num_replays() const { return num_replays_; }
  /// Makes the op that is issued after `count` more ops fail with an internal error.
  void fail_op_after(int count) { ops_until_failure_ = count; }
  /// Makes the op that runs after `count` more ops on streams of this name fail permanently; with `only_the_stream`,
  /// other streams of the device continue. This happens `times` times; the count starts again after each.
  void break_after(std::string stream_name, int count, bool only_the_stream, int times = 1);
  int num_streams_broken() const;

 private:
  friend class SplitOps;
  friend class SplitStream;
  void note_late_error(const std::string& message);
  /// Returns whether this op must fail.
  bool takes_failure();
  /// Returns whether this op, which runs now, breaks its stream, and possibly the device.
  bool takes_breakage(const std::string& stream_name);
  void delay_now_and_then();

  std::shared_ptr<kernels::Device> cpu_;
  SplitMemory memory_;
  std::unique_ptr<SplitOps> ops_;
  std::atomic<int> num_records_{0};
  std::atomic<int> num_replays_{0};
  std::atomic<int> ops_until_failure_{-1};
  std::atomic<std::uint64_t> random_;
  mutable std::mutex mutex_;
  std::optional<std::string> late_error_;
  struct Breakage {
    std::string stream_name;
    int count = 0;
    int ops_left = 0;
    bool only_the_stream = false;
    int times = 0;
  };
  Breakage breakage_;
  int num_streams_broken_ = 0;
};

}  // namespace pagoda::test
