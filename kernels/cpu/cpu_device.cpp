#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_count.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/cpu_ops.hpp"
#include "kernels/cpu/cpu_stream.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/machine_topology.hpp"
#include "kernels/cpu/thread_placement.hpp"
#include "kernels/cpu_parts.hpp"
#include "kernels/device.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {
namespace {

constexpr int kMaxThreads = 1024;

/// The cores that threads are bound to.
class Binding {
 public:
  /// Makes a binding that does not bind threads.
  Binding() = default;
  Binding(std::shared_ptr<const MachineTopology> machine, std::vector<std::size_t> places, bool interleaves)
      : machine_(std::move(machine)), places_(std::move(places)), interleaves_(interleaves) {}

  bool binds() const { return machine_ != nullptr; }
  bool interleaves() const { return interleaves_; }
  int num_nodes() const { return machine_->cpus().num_nodes; }

  /// Call only if binds().
  Status bind_this_thread(int thread) const {
    return machine_->bind_this_thread(machine_->cpus().cores[places_[static_cast<std::size_t>(thread)]]);
  }

  void interleave(void* data, std::size_t bytes) const { machine_->interleave(data, bytes); }

  /// Tries all bindings on a temporary thread; returns the first error.
  Status try_all() const {
    Status status;
    std::thread trial([&] {
      for (std::size_t thread = 0; thread < places_.size() && status; ++thread) {
        status = bind_this_thread(static_cast<int>(thread));
      }
    });
    trial.join();
    return status;
  }

 private:
  std::shared_ptr<const MachineTopology> machine_;
  std::vector<std::size_t> places_;
  bool interleaves_ = false;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(CpuIsa isa, int num_threads, Binding binding)
      : isa_(isa),
        binding_(std::move(binding)),
        threads_(num_threads, on_start_of_thread()),
        ops_(kernels_for(isa), threads_) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }

  std::string description() const override {
    const int threads = threads_.num_threads();
    std::string text = "cpu " + std::string(to_string(isa_)) + ", " + std::to_string(threads) +
                       (threads == 1 ? " thread" : " threads");
    if (binding_.binds()) text += " bound to cores";
    if (binding_.interleaves()) text += " of " + std::to_string(binding_.num_nodes()) + " nodes";
    return text;
  }

  Result<Buffer> allocate(std::size_t bytes, MemoryKind) override { return allocate_cpu_memory(bytes, place()); }

  Result<Buffer> map(int file, std::size_t offset, std::size_t bytes) override {
    return map_cpu_memory(file, offset, bytes, place());
  }

  /// Works in rounds. Before each round it checks that the memory for the round is available. So if another process
  /// allocates memory meanwhile, this call fails, and the system does not kill a process.
  Status touch(const Buffer& buffer, const std::function<void(double done)>& progress) override {
    constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // some huge pages
    constexpr std::size_t kPiecesPerThread = 8;
    const std::size_t bytes = buffer.bytes();
    const std::size_t round = kPieceBytes * kPiecesPerThread * static_cast<std::size_t>(threads_.num_threads());
    for (std::size_t begin = 0; begin < bytes; begin += round) {
      if (progress) progress(static_cast<double>(begin) / static_cast<double>(bytes));
      const std::size_t end = std::min(bytes, begin + round);
      if (end - begin > available_cpu_memory()) {
        return fail(ErrorCode::out_of_memory, "cannot take " + describe_allocation(bytes - begin) + ", after " +
                                                  std::to_string(begin >> 20) + " MiB were taken");
      }
      std::mutex mutex;
      Status status;
      const auto num_pieces = static_cast<std::int64_t>((end - begin + kPieceBytes - 1) / kPieceBytes);
      threads_.parallel_for(num_pieces, [&](std::int64_t piece) {
        const std::size_t at = begin + static_cast<std::size_t>(piece) * kPieceBytes;
        auto touched = touch_cpu_memory(buffer.as<std::byte>() + at, std::min(kPieceBytes, end - at));
        const std::lock_guard lock(mutex);
        if (!touched) status = std::move(touched);
      });
      if (!status) return status;
    }
    if (progress && bytes > 0) progress(1);
    return {};
  }

  Result<std::unique_ptr<Stream>> create_stream(const std::string& name) override {
    try {
      // The stream's thread is thread 0 of the pool while an op runs.
      return std::make_unique<CpuStream>(
          name, binding_.binds() ? [binding = binding_] { static_cast<void>(binding.bind_this_thread(0)); }
                                 : std::function<void()>());
    } catch (const std::system_error& error) {
      return fail(ErrorCode::internal, "cannot start the thread of stream " + name + ": " + error.what());
    }
  }

  const Ops& ops() const override { return ops_; }

  std::size_t available_bytes(MemoryKind) const override { return available_cpu_memory(); }

 private:
  /// Returns the function that places large buffers on NUMA nodes; empty without interleaving.
  std::function<void(void*, std::size_t)> place() const {
    if (!binding_.interleaves()) return {};
    return [this](void* data, std::size_t size) { binding_.interleave(data, size); };
  }

  /// Returns the function that binds a thread when it starts. A thread that can no longer be bound (the process was
  /// moved to other cores meanwhile) stays unbound.
  std::function<void(int)> on_start_of_thread() const {
    if (!binding_.binds()) return {};
    return [binding = binding_](int thread) { static_cast<void>(binding.bind_this_thread(thread)); };
  }

  CpuIsa isa_;
  Binding binding_;
  ThreadPool threads_;
  CpuOps ops_;
};

/// Returns the number of the part's threads.
int threads_of_part(const CpuPart& part, int num_threads) {
  return num_threads / part.num_parts + (part.part < num_threads % part.num_parts ? 1 : 0);
}

Status check_parts(const CpuPart& part, int num_threads) {
  if (num_threads >= part.num_parts) return {};
  return fail(ErrorCode::bad_config,
              "each of " + std::to_string(part.num_parts) + " devices needs a CPU thread of its own, and there are " +
                  std::to_string(num_threads) + " (threads)",
              "threads");
}

/// Returns the binding and the number of threads. If num_threads is 0, the default is one thread per core or CPU that
/// the process may use, limited by the CPU quota.
Result<std::pair<Binding, int>> bind_threads(const CpuDeviceOptions& options, const CpuPart& part) {
  const UsableCpus cpus = usable_cpus();
  const auto threads_for = [&](int candidates) {
    return options.num_threads == 0 ? cpus.threads_for(candidates) : options.num_threads;
  };
  if (Status enough = check_parts(part, threads_for(cpus.allowed)); !enough) return fail(std::move(enough.error()));
  const std::pair<Binding, int> unbound{Binding(), threads_of_part(part, threads_for(cpus.allowed))};
  auto affinity = parse_affinity(options.affinity);
  if (!affinity) return fail(std::move(affinity.error()));
  if (*affinity == CpuAffinity::none) return unbound;
  if (*affinity == CpuAffinity::automatic && !MachineTopology::in_build()) return unbound;
  auto machine = MachineTopology::load();
  if (!machine) return fail(std::move(machine.error()));
  const CpuTopology& topology = (*machine)->cpus();
  const CpuAffinity resolved = resolve_affinity(*affinity, topology);
  if (resolved == CpuAffinity::none || topology.cores.empty()) return unbound;
  const int all_threads = threads_for(static_cast<int>(topology.cores.size()));
  if (Status enough = check_parts(part, all_threads); !enough) return fail(std::move(enough.error()));
  const int num_threads = threads_of_part(part, all_threads);
  const bool is_whole = part.num_parts == 1;
  std::vector<std::size_t> places = is_whole ? place_threads(topology, resolved, num_threads)
                                             : place_threads_of_part(topology, part.part, part.num_parts, num_threads);
  const bool interleaves = is_whole && resolved == CpuAffinity::numa && topology.num_nodes > 1;
  Binding binding(std::move(*machine), std::move(places), interleaves);
  if (const Status status = binding.try_all(); !status) {
    return *affinity == CpuAffinity::automatic ? Result<std::pair<Binding, int>>(unbound) : fail(status.error());
  }
  return std::pair{std::move(binding), num_threads};
}

}  // namespace

bool cpu_parts_have_own_nodes(const std::string& affinity) {
  const auto wanted = parse_affinity(affinity);
  if (!wanted || !MachineTopology::in_build()) return false;
  const auto machine = MachineTopology::load();
  if (!machine || (*machine)->cpus().num_nodes < 2) return false;
  return resolve_affinity(*wanted, (*machine)->cpus()) != CpuAffinity::none;
}

Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options) {
  return create_cpu_device(options, CpuPart());
}

Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options, const CpuPart& part) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return fail(ErrorCode::bad_config,
                "number of CPU threads must be between 0 (one per core) and " + std::to_string(kMaxThreads) + ", not " +
                    std::to_string(options.num_threads),
                "num_threads");
  }
  const auto isa = choose_isa(options.isa);
  if (!isa) return fail(isa.error());
  try {
    auto bound = bind_threads(options, part);
    if (!bound) return fail(std::move(bound.error()));
    auto& [binding, num_threads] = *bound;
    return std::make_shared<CpuDevice>(*isa, num_threads, std::move(binding));
  } catch (const std::system_error& error) {
    return fail(ErrorCode::bad_config, std::string("cannot start the CPU threads: ") + error.what(), "num_threads");
  }
}

}  // namespace pagoda::kernels
