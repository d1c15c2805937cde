#include "tests/kernels/op_backends.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <utility>

#include "kernels/cpu/isa.hpp"
#include "kernels/cuda/cuda_device.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"

namespace pagoda::kernels::testing_support {

std::vector<std::string> cpu_backends() {
  std::vector<std::string> backends;
  for (const CpuIsa isa : available_isas()) backends.emplace_back(to_string(isa));
  return backends;
}

std::vector<std::string> all_backends() {
  std::vector<std::string> backends = cpu_backends();
  backends.emplace_back(kEmulatedCuda);
  backends.emplace_back(kCuda);
  return backends;
}

bool is_cuda(const std::string& backend) {
  return backend == kEmulatedCuda || backend == kCuda;
}

OpRunner::OpRunner(const std::string& backend, int num_threads) {
  Result<std::shared_ptr<Device>> device = backend == kEmulatedCuda ? cuda_emulator::create_emulated_cuda_device()
                                           : backend == kCuda       ? create_cuda_device(0)
                                                                    : create_cpu_device({num_threads, backend});
  if (!device) {
    missing_ = device.error().message;
    return;
  }
  device_ = *device;
  stream_ = device_->create_stream("test").value();
}

OpRunner::OpRunner(CpuIsa isa, int num_threads) : OpRunner(std::string(to_string(isa)), num_threads) {}

/// Collects the host memory of all arrays.
class OpRunner::Collector {
 public:
  template <class T>
  void in(const T* pointer, std::int64_t count) {
    add(pointer, count, sizeof(T));
  }
  void in(const void* pointer, std::int64_t bytes) { add(pointer, bytes, 1); }
  template <class T>
  void out(T* pointer, std::int64_t count) {
    in(static_cast<const T*>(pointer), count);
  }
  template <class T, class F>
  void structs(std::span<const T> items, const F& f) {
    for (T item : items) f(item);
  }
  template <class T>
  void elements(std::span<const T> items) {
    in(items.data(), static_cast<std::int64_t>(items.size()));
  }

  /// Returns the ranges; ranges that overlap or touch are joined.
  std::vector<Range> ranges() {
    std::sort(ranges_.begin(), ranges_.end());
    std::vector<Range> merged;
    for (const auto& [first, end] : ranges_) {
      if (!merged.empty() && first <= merged.back().end) {
        merged.back().end = std::max(merged.back().end, end);
      } else {
        merged.push_back({first, end, {}, nullptr});
      }
    }
    return merged;
  }

 private:
  void add(const void* pointer, std::int64_t count, std::size_t size) {
    if (pointer == nullptr || count <= 0) return;
    const auto* first = static_cast<const std::byte*>(pointer);
    ranges_.emplace_back(first, first + static_cast<std::size_t>(count) * size);
  }

  std::vector<std::pair<const std::byte*, const std::byte*>> ranges_;
};

/// Replaces all pointers by device addresses, and collects the ranges that are written.
class OpRunner::Rewriter {
 public:
  explicit Rewriter(const std::vector<Range>& ranges) : ranges_(ranges) {}

  struct Written {
    void* host;
    const void* device;
    std::size_t bytes;
  };
  const std::vector<Written>& written() const { return written_; }

  template <class T>
  void in(const T*& pointer, std::int64_t) {
    pointer = static_cast<const T*>(on_device(pointer));
  }
  template <class T>
  void out(T*& pointer, std::int64_t count) {
    if (pointer == nullptr) return;
    void* device = on_device(pointer);
    if constexpr (std::is_void_v<T>) {
      if (count > 0) written_.push_back({pointer, device, static_cast<std::size_t>(count)});
    } else {
      if (count > 0) written_.push_back({pointer, device, static_cast<std::size_t>(count) * sizeof(T)});
    }
    pointer = static_cast<T*>(device);
  }
  template <class T, class F>
  void structs(std::span<const T>& items, const F& f) {
    auto owned = std::make_shared<std::vector<T>>(items.begin(), items.end());
    for (T& item : *owned) f(item);
    items = *owned;
    owned_.push_back(std::move(owned));
  }
  template <class T>
  void elements(std::span<const T>& items) {
    if (!items.empty()) items = {static_cast<const T*>(on_device(items.data())), items.size()};
  }

 private:
  void* on_device(const void* pointer) const {
    const auto* host = static_cast<const std::byte*>(pointer);
    for (const Range& range : ranges_) {
      if (host >= range.first && host < range.end) return range.device + (host - range.first);
    }
    return const_cast<void*>(pointer);  // null, or an empty array
  }

  const std::vector<Range>& ranges_;
  std::vector<Written> written_;
  std::vector<std::shared_ptr<void>> owned_;
};

Status OpRunner::issue(const std::function<Status()>& op) const {
  Status status;
  stream_->submit([&] { status = op(); });
  stream_->synchronize();
  return status ? stream_->status() : status;
}

Status OpRunner::copy(void* to, const void* from, std::size_t bytes) const {
  return issue([&] { return device_->ops().copy(*stream_, {from, to, bytes}); });
}

template <class P>
Status OpRunner::run(Status (Ops::*op)(Stream&, const P&) const, P& params) const {
  const auto run_op = [&] { return (device_->ops().*op)(*stream_, params); };
  if (device_->kind() == DeviceKind::cpu) return issue(run_op);

  static std::atomic<std::uint64_t> order{0};
  cuda_emulator::set_emulated_order(order++);
  Collector collector;
  visit(params, collector);
  std::vector<Range> ranges = collector.ranges();
  constexpr std::size_t kAlignment = 256;
  for (Range& range : ranges) {
    const auto bytes = static_cast<std::size_t>(range.end - range.first);
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(range.first) % kAlignment;
    range.buffer = device_->allocate(offset + bytes, MemoryKind::device).value();
    range.device = range.buffer.as<std::byte>() + offset;
    const Buffer staging = device_->allocate(bytes, MemoryKind::host).value();
    std::memcpy(staging.data(), range.first, bytes);
    if (Status copied = copy(range.device, staging.data(), bytes); !copied) return copied;
  }
  Rewriter rewriter(ranges);
  visit(params, rewriter);
  if (Status status = issue(run_op); !status) return status;
  for (const Rewriter::Written& written : rewriter.written()) {
    const Buffer staging = device_->allocate(written.bytes, MemoryKind::host).value();
    if (Status copied = copy(staging.data(), written.device, written.bytes); !copied) return copied;
    std::memcpy(written.host, staging.data(), written.bytes);
  }
  return {};
}

#define PAGODA_RUN(P) template Status OpRunner::run(Status (Ops::*)(Stream&, const P&) const, P&) const
PAGODA_RUN(EmbeddingParams);
PAGODA_RUN(RmsNormParams);
PAGODA_RUN(LayerNormParams);
PAGODA_RUN(LinearParams);
PAGODA_RUN(QuantizedLinearParams);
PAGODA_RUN(QuantizeWeightsParams);
PAGODA_RUN(LoraParams);
PAGODA_RUN(ConvertParams);
PAGODA_RUN(RotaryParams);
PAGODA_RUN(StoreKvParams);
PAGODA_RUN(PagedAttentionParams);
PAGODA_RUN(ActivationParams);
PAGODA_RUN(ScaleParams);
PAGODA_RUN(GatherRowsParams);
PAGODA_RUN(GatherTokensParams);
PAGODA_RUN(ScatterTokensParams);
PAGODA_RUN(CopyParams);
PAGODA_RUN(MoveBlocksParams);
PAGODA_RUN(SampleParams);
#undef PAGODA_RUN

}  // namespace pagoda::kernels::testing_support
