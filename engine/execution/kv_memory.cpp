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
  return fail(
      ErrorCode::out_of_memory,
      "the KV cache asks for " + std::to_string(bytes >> 20) + " MiB: " + buffer.error().message + "; lower " + flag,
      flag);
}

}  // namespace

Result<std::shared_ptr<KvMemory>> KvMemory::create(std::shared_ptr<kernels::Device> device, std::int64_t block_bytes,
                                                   std::int32_t num_device_blocks, std::int32_t num_host_blocks,
                                                   kernels::Buffer host_pool) {
  auto device_pool =
      allocate_pool(*device, block_bytes * num_device_blocks, kernels::MemoryKind::device, "num_device_blocks");
  if (!device_pool) return fail(device_pool.error());
  std::shared_ptr<KvMemory> memory(new KvMemory);
  if (num_host_blocks > 0 && host_pool.data() == nullptr) {
    auto allocated =
        allocate_pool(*device, block_bytes * num_host_blocks, kernels::MemoryKind::host, "num_host_blocks");
    if (!allocated) return fail(allocated.error());
    host_pool = std::move(*allocated);
    memory->allocated_host_pool_ = true;
  }
  memory->host_pool_ = std::move(host_pool);
  memory->device_ = std::move(device);
  memory->block_bytes_ = block_bytes;
  memory->device_pool_ = std::move(*device_pool);
  return memory;
}

Status KvMemory::touch(const std::function<void(double done)>& progress) const {
  const auto device_bytes = static_cast<double>(device_pool_.bytes());
  const auto host_bytes = allocated_host_pool_ ? static_cast<double>(host_pool_.bytes()) : 0.0;
  const auto touch_pool = [&](const kernels::Buffer& pool, double bytes_before, const char* flag) -> Status {
    const auto report = [&](double done) {
      const double share = (bytes_before + done * static_cast<double>(pool.bytes())) / (device_bytes + host_bytes);
      if (progress) progress(share);
    };
    const Status status = device_->touch(pool, report);
    if (status) return {};
    return fail(status.error().code, "the KV cache: " + status.error().message + "; lower " + flag, flag);
  };
  Status status = touch_pool(device_pool_, 0, "num_device_blocks");
  if (status && allocated_host_pool_) status = touch_pool(host_pool_, device_bytes, "num_host_blocks");
  return status;
}

Status KvMemory::move(kernels::Stream& stream, const std::vector<BlockMove>& moves, const kernels::Buffer& from,
                      const kernels::Buffer& to) const {
  if (moves.empty()) return {};
  std::vector<std::int32_t> from_blocks;
  std::vector<std::int32_t> to_blocks;
  for (const BlockMove& m : moves) {
    from_blocks.push_back(m.from);
    to_blocks.push_back(m.to);
  }
  return device_->ops().move_blocks(stream,
                                    {from.as<std::byte>(), to.as<std::byte>(), block_bytes_, from_blocks, to_blocks});
}

Status KvMemory::issue_swaps(kernels::Stream& stream, const CachePlan& plan) const {
  Status status = move(stream, plan.swap_out, device_pool_, host_pool_);
  if (status) status = move(stream, plan.swap_in, host_pool_, device_pool_);
  return status;
}

Status KvMemory::issue_copies(kernels::Stream& stream, const CachePlan& plan) const {
  return move(stream, plan.copies, device_pool_, device_pool_);
}

}  // namespace pagoda::execution
