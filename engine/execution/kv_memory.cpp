#include "engine/execution/kv_memory.hpp"

#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.hpp"

namespace pagoda::execution {
namespace {

Result<kernels::Buffer> allocate_pool(kernels::Device& device, std::int64_t bytes, kernels::MemoryKind kind,
                                      const char* flag) {
  auto buffer = device.allocate(static_cast<std::size_t>(bytes), kind);
  if (buffer) return buffer;
  return fail(ErrorCode::out_of_memory,
              "cannot allocate " + std::to_string(bytes >> 20) + " MiB for the KV cache: " + buffer.error().message +
                  "; lower " + flag,
              flag);
}

}  // namespace

Result<std::shared_ptr<KvMemory>> KvMemory::create(std::shared_ptr<kernels::Device> device, std::int64_t block_bytes,
                                                   std::int32_t num_device_blocks, std::int32_t num_host_blocks,
                                                   KvPools pools) {
  PAGODA_ASSERT(pools.progress.data() == nullptr || device->shares_host_memory(),
                "a move is done when its op returns, where progress is written");
  if (pools.device.data() == nullptr) {
    auto allocated =
        allocate_pool(*device, block_bytes * num_device_blocks, kernels::MemoryKind::device, "num_device_blocks");
    if (!allocated) return fail(std::move(allocated.error()));
    pools.device = std::move(*allocated);
  }
  if (num_host_blocks > 0 && pools.host.data() == nullptr) {
    auto allocated =
        allocate_pool(*device, block_bytes * num_host_blocks, kernels::MemoryKind::host, "num_host_blocks");
    if (!allocated) return fail(std::move(allocated.error()));
    pools.host = std::move(*allocated);
    pools.touch_host = true;
  }
  std::shared_ptr<KvMemory> memory(new KvMemory);
  memory->device_ = std::move(device);
  memory->block_bytes_ = block_bytes;
  memory->pools_ = std::move(pools);
  return memory;
}

Status KvMemory::touch(const std::function<void(double done)>& progress) const {
  const auto device_bytes = static_cast<double>(pools_.device.bytes());
  const auto host_bytes = pools_.touch_host ? static_cast<double>(pools_.host.bytes()) : 0.0;
  const auto touch_pool = [&](const kernels::Buffer& pool, double bytes_before, const char* flag) -> Status {
    const auto report = [&](double done) {
      const double share = (bytes_before + done * static_cast<double>(pool.bytes())) / (device_bytes + host_bytes);
      if (progress) progress(share);
    };
    const Status status = device_->touch(pool, report);
    if (status) return {};
    return fail(status.error().code, "the KV cache: " + status.error().message + "; lower " + flag, flag);
  };
  Status status = touch_pool(pools_.device, 0, "num_device_blocks");
  if (status && pools_.touch_host) status = touch_pool(pools_.host, device_bytes, "num_host_blocks");
  return status;
}

Status KvMemory::move(kernels::Stream& stream, StepId plan, PlanProgress::Part part,
                      const std::vector<BlockMove>& moves, const kernels::Buffer& from,
                      const kernels::Buffer& to) const {
  if (progress() != nullptr && progress()->is_done(plan, part)) return {};
  Status status;
  if (!moves.empty()) {
    std::vector<std::int32_t> from_blocks;
    std::vector<std::int32_t> to_blocks;
    for (const BlockMove& m : moves) {
      from_blocks.push_back(m.from);
      to_blocks.push_back(m.to);
    }
    status = device_->ops().move_blocks(
        stream, {from.as<std::byte>(), to.as<std::byte>(), block_bytes_, from_blocks, to_blocks});
  }
  if (status && progress() != nullptr) progress()->set_done(plan, part);
  return status;
}

Status KvMemory::issue_swaps(kernels::Stream& stream, const CachePlan& plan) const {
  using Part = PlanProgress::Part;
  Status status = move(stream, plan.step, Part::swap_out, plan.swap_out, pools_.device, pools_.host);
  if (status) status = move(stream, plan.step, Part::swap_in, plan.swap_in, pools_.host, pools_.device);
  return status;
}

Status KvMemory::issue_copies(kernels::Stream& stream, const CachePlan& plan) const {
  return move(stream, plan.step, PlanProgress::Part::copies, plan.copies, pools_.device, pools_.device);
}

}  // namespace pagoda::execution
