#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::kernels {

class Ops;

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where a buffer lives. On the CPU both are ordinary memory; on a GPU `host` is pinned memory.
enum class MemoryKind : std::uint8_t { device, host };

/// Owns one allocation of a device. Movable; freed when destroyed. Aligned to 64 bytes at least; zeroed.
class Buffer {
 public:
  using Deleter = std::function<void(void*, std::size_t)>;
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Deleter deleter) : data_(data), bytes_(bytes), deleter_(std::move(deleter)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer gone(std::move(*this));
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr && deleter_) deleter_(data_, bytes_);
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Deleter deleter_;
};

/// A point in a stream's order. Recorded once, waited for by other streams or by the host. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  /// True once everything enqueued before the record has finished. False before it was recorded.
  virtual bool finished() const = 0;
  /// Blocks the calling thread until it has finished.
  virtual void synchronize() = 0;
};

/// An in-order queue of work on one device. On the CPU it is a thread with a queue; on a GPU a CUDA stream.
/// One thread enqueues at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Runs `issue` in stream order. Inside it, ops of this device are issued. CPU: `issue` runs later on the stream's
  /// thread and its ops compute before it returns. GPU: `issue` runs at once on the caller's thread, since its ops only
  /// enqueue. So code that issues ops inside `submit` is right on both.
  virtual void submit(std::function<void()> issue) = 0;

  /// Inside `submit`: issues what `issue` issues. A GPU may record it once for a key and replay the record later, so
  /// for one key it must always be the same ops with the same pointers and shapes; what the memory holds may differ.
  virtual Status replay(std::uint64_t key, const std::function<Status()>& issue) {
    static_cast<void>(key);
    return issue();
  }

  /// Calls `callback` after everything enqueued before has finished or failed, on a thread of the device. It must not
  /// block, throw or issue ops.
  virtual void on_complete(std::function<void()> callback) = 0;

  /// The first error of the work that was enqueued, as far as it is known; final. On a GPU an op's own failure shows
  /// after the call that enqueued it: here, from the callbacks of on_complete on, and in every later op. On a CPU an op
  /// returns its failure, and this is an exception that work let go. Thread-safe.
  virtual Status status() const { return {}; }

  virtual std::shared_ptr<Event> record() = 0;
  /// Everything enqueued later waits for `event` (of any stream of this device).
  virtual void wait(std::shared_ptr<Event> event) = 0;

  /// Blocks the calling thread until the stream is empty. Never on the step path.
  virtual void synchronize() = 0;
};

/// One compute device: memory, streams and the table of its ops.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  /// Whether host and device use each other's memory where it lies, so that nothing is copied between the two.
  virtual bool shares_host_memory() const { return kind() == DeviceKind::cpu; }
  /// For logs: for example "cpu avx512, 2 threads".
  virtual std::string description() const = 0;
  virtual Result<Buffer> allocate(std::size_t bytes, MemoryKind kind) = 0;
  /// Memory of this device that is a file's (memfd_create), so that it outlives the process: what it holds stays, and
  /// the file is not kept open. Errors: unsupported where a device has memory of its own; io_failed.
  virtual Result<Buffer> map(int file, std::size_t offset, std::size_t bytes) {
    static_cast<void>(file);
    static_cast<void>(offset);
    static_cast<void>(bytes);
    return fail(ErrorCode::unsupported, "this device has no memory of files");
  }
  /// Takes the physical memory of a buffer of this device now, where it would else be taken as it is first written;
  /// what it holds stays. For buffers that no stream uses yet. `progress(done)` hears of the share that is done, 0
  /// to 1. Errors: out_of_memory, with the numbers.
  virtual Status touch(const Buffer& buffer, const std::function<void(double done)>& progress) {
    static_cast<void>(buffer);  // a GPU takes memory when it is allocated
    static_cast<void>(progress);
    return {};
  }
  virtual Result<std::unique_ptr<Stream>> create_stream(const std::string& name) = 0;
  virtual const Ops& ops() const = 0;
  /// Bytes that may still be allocated for the given kind (physical memory on the CPU).
  virtual std::size_t available_bytes(MemoryKind kind) const = 0;
};

/// Which instruction set the CPU ops use. bfloat16 is widened and meets float32 in float32 multiply-adds, but with
/// avx512_bf16: there what meets bfloat16 weights, keys and values (activations, queries, probabilities) is rounded to
/// bfloat16, and subnormal numbers count as 0. That is twice as fast on AMD and half as fast on Intel, so only AMD's
/// CPUs take it by themselves. The vnni and dotprod sets differ from the ones before them in quantised weights only.
enum class CpuIsa : std::uint8_t { scalar, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, neon, neon_dotprod };

struct CpuDeviceOptions {
  int num_threads = 0;            ///< 0 = one per available core
  std::string isa;                ///< "" = the fastest that this machine can run; or a name of kernels/cpu/isa.hpp
  std::string affinity = "auto";  ///< binds threads to cores: a CpuAffinity of kernels/cpu/thread_placement.hpp
};

/// The CPU device. With the affinity numa on several NUMA nodes, large buffers lie on the nodes in turn. Errors: an
/// unknown or unavailable isa, num_threads < 0, an unknown affinity or cores that cannot be bound to (bad_config), an
/// affinity that needs hwloc in a build without it (unsupported).
Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options);

}  // namespace pagoda::kernels
