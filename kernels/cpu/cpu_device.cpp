#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/cpu_ops.hpp"
#include "kernels/cpu/cpu_stream.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/device.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {
namespace {

constexpr int kMostThreads = 1024;

class CpuDevice final : public Device {
 public:
  CpuDevice(CpuIsa isa, int num_threads) : isa_(isa), threads_(num_threads), ops_(kernels_for(isa), threads_) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }

  std::string description() const override {
    const int threads = threads_.num_threads();
    return "cpu " + std::string(to_string(isa_)) + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }

  Result<Buffer> allocate(std::size_t bytes, MemoryKind) override { return allocate_cpu_memory(bytes); }

  Result<std::unique_ptr<Stream>> create_stream(const std::string& name) override {
    try {
      return std::make_unique<CpuStream>(name);
    } catch (const std::system_error& error) {
      return fail(ErrorCode::internal, "cannot start the thread of stream " + name + ": " + error.what());
    }
  }

  const Ops& ops() const override { return ops_; }

  std::size_t available_bytes(MemoryKind) const override { return available_cpu_memory(); }

 private:
  CpuIsa isa_;
  ThreadPool threads_;
  CpuOps ops_;
};

}  // namespace

Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMostThreads) {
    return fail(ErrorCode::bad_config,
                "number of CPU threads must be between 0 (one per core) and " + std::to_string(kMostThreads) +
                    ", not " + std::to_string(options.num_threads),
                "num_threads");
  }
  const auto isa = choose_isa(options.isa);
  if (!isa) return fail(isa.error());
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    return std::make_shared<CpuDevice>(*isa, options.num_threads == 0 ? cores : options.num_threads);
  } catch (const std::system_error& error) {
    return fail(ErrorCode::bad_config, std::string("cannot start the CPU threads: ") + error.what(), "num_threads");
  }
}

}  // namespace pagoda::kernels
