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

/// Location of a buffer. On the CPU both kinds are ordinary memory; on a GPU `host` is pinned memory.
enum class MemoryKind : std::uint8_t { device, host };

/// Owns one allocation of a device: zeroed memory, aligned to at least 64 bytes. The destructor frees it.
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

/// A point in a stream's order. It is recorded once; other streams or the host wait for it. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  /// Returns whether all work that was enqueued before the record has finished; false before the event is recorded.
  virtual bool finished() const = 0;
  /// Blocks the calling thread until finished().
  virtual void synchronize() = 0;
};

/// An in-order queue of work on one device: on the CPU a thread with a queue, on a GPU a CUDA stream. Only one thread
/// may enqueue at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Runs `issue`, which issues ops of this device, in stream order. CPU: `issue` runs later on the stream's thread,
  /// and each op computes before it returns. GPU: `issue` runs at once on the caller's thread, because its ops only
  /// enqueue work. So code that issues ops inside `submit` works on both.
  virtual void submit(std::function<void()> issue) = 0;

  /// Enqueues the ops that `issue` issues; call inside `submit`. A GPU may record the ops once for a key and replay the
  /// record later without a call of `issue`. So for one key, `issue` must always issue the same ops with the same
  /// pointers and shapes; the contents of the memory may differ.
  virtual Status replay(std::uint64_t key, const std::function<Status()>& issue) {
    static_cast<void>(key);
    return issue();
  }

  /// Calls `callback` on a thread of the device after all work that was enqueued earlier has finished or failed. The
  /// callback must not block, throw or issue ops.
  virtual void on_complete(std::function<void()> callback) = 0;

  /// Returns the first known error of the enqueued work; once set, it stays. On a GPU an op can fail after the call
  /// that enqueued it: then status() returns the error, at the latest in the callbacks of on_complete, and every later
  /// op fails with it. On a CPU an op returns its own failure, and status() reports an exception that submitted work
  /// threw. Thread-safe.
  virtual Status status() const { return {}; }

  virtual std::shared_ptr<Event> record() = 0;
  /// Makes all work that is enqueued later wait for `event` (of any stream of this device).
  virtual void wait(std::shared_ptr<Event> event) = 0;

  /// Blocks the calling thread until the stream is empty. Do not call it on the step path.
  virtual void synchronize() = 0;
};

/// One compute device: memory, streams and the table of its ops.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  /// Returns whether host and device can use each other's memory directly, so that no copies between them are needed.
  virtual bool shares_host_memory() const { return kind() == DeviceKind::cpu; }
  /// Returns a text for logs, for example "cpu avx512, 2 threads".
  virtual std::string description() const = 0;
  virtual Result<Buffer> allocate(std::size_t bytes, MemoryKind kind) = 0;
  /// Maps `bytes` bytes of a file (memfd_create) from `offset` on as memory of this device, so that the contents
  /// outlive the process. The contents do not change, and the buffer does not keep the file open. Errors: unsupported
  /// on devices with memory of their own; io_failed.
  virtual Result<Buffer> map(int file, std::size_t offset, std::size_t bytes) {
    static_cast<void>(file);
    static_cast<void>(offset);
    static_cast<void>(bytes);
    return fail(ErrorCode::unsupported, "this device cannot use the memory of files as its own");
  }
  /// Makes the operating system provide the physical memory of a buffer of this device now and not at the first write;
  /// the contents do not change. Call before any stream uses the buffer. Calls `progress(done)` with the fraction that
  /// is done, 0 to 1. Errors: out_of_memory, with the numbers.
  virtual Status touch(const Buffer& buffer, const std::function<void(double done)>& progress) {
    static_cast<void>(buffer);  // a GPU takes memory when it is allocated
    static_cast<void>(progress);
    return {};
  }
  virtual Result<std::unique_ptr<Stream>> create_stream(const std::string& name) = 0;
  virtual const Ops& ops() const = 0;
  /// Returns the bytes that can still be allocated of the given kind (on the CPU: physical memory).
  virtual std::size_t available_bytes(MemoryKind kind) const = 0;
};

/// Instruction set of the CPU ops. All sets except avx512_bf16 and avx512_amx widen bfloat16 to float32 and multiply in
/// float32. avx512_bf16 rounds the other operand of bfloat16 weights, keys and values (activations, queries,
/// probabilities) to bfloat16 and treats subnormal numbers as 0. That is twice as fast on AMD and half as fast on
/// Intel, so it is the default on AMD CPUs only. avx512_amx rounds the same, and treats subnormal
/// weights, keys and values as 0, on a matrix unit, which is several times faster. Each vnni and dotprod set differs
/// from the set before it only in products with quantised weights.
enum class CpuIsa : std::uint8_t {
  scalar,
  avx2,
  avx_vnni,
  avx512,
  avx512_vnni,
  avx512_bf16,
  avx512_amx,
  neon,
  neon_dotprod
};

struct CpuDeviceOptions {
  int num_threads = 0;  ///< 0 = one per available core
  std::string isa;      ///< name of an instruction set (kernels/cpu/isa.hpp); "" = the fastest that this machine runs
  /// Binding of threads to cores: name of a CpuAffinity (kernels/cpu/thread_placement.hpp).
  std::string affinity = "auto";
};

/// Creates the CPU device. With the affinity numa on several NUMA nodes, the pages of large buffers are interleaved
/// over the nodes. Errors: bad_config (unknown or unavailable isa, num_threads < 0, unknown affinity, or a core that
/// threads cannot be bound to), unsupported (an affinity that needs hwloc in a build without it).
Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options);

}  // namespace pagoda::kernels
