#include "engine/weights/weight_memory.hpp"

#include <utility>

namespace pagoda::weights {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{24} << 20;
constexpr std::size_t kWeightAlignment = 64;

}  // namespace

Result<kernels::Buffer> WeightMemory::allocate(std::size_t bytes) {
  const std::size_t taken = (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  if (taken == 0 || taken > kPieceBytes / 2) return device_->allocate(bytes, kernels::MemoryKind::device);
  const std::lock_guard lock(mutex_);
  auto piece = piece_.lock();
  if (piece == nullptr || used_ + taken > kPieceBytes) {
    auto memory = device_->allocate(kPieceBytes, kernels::MemoryKind::device);
    if (!memory) return device_->allocate(bytes, kernels::MemoryKind::device);
    piece = std::make_shared<kernels::Buffer>(std::move(*memory));
    piece_ = piece;
    used_ = 0;
  }
  std::byte* const data = piece->as<std::byte>() + std::exchange(used_, used_ + taken);
  return kernels::Buffer(data, bytes, [piece = std::move(piece)](void*, std::size_t) {});
}

}  // namespace pagoda::weights
