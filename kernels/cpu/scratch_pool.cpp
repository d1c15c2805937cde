#include "kernels/cpu/scratch_pool.hpp"

#include <algorithm>
#include <bit>

#include "kernels/cpu/cpu_memory.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMinBytes = std::size_t{64} << 10;

}  // namespace

Result<ScratchPool::Lease> ScratchPool::borrow(std::int64_t num_floats, int num_parts) {
  const std::size_t needed =
      static_cast<std::size_t>(num_floats) * sizeof(float) + static_cast<std::size_t>(num_parts) * kAlignment;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Buffer& b) { return b.bytes() >= needed; });
    if (fits != free_.end()) {
      Buffer buffer = std::move(*fits);
      free_.erase(fits);
      return Lease(*this, std::move(buffer));
    }
    if (!free_.empty()) free_.pop_back();  // a larger piece replaces it
  }
  auto buffer = allocate_cpu_memory(std::bit_ceil(std::max(needed, kMinBytes)));
  if (!buffer) return fail(std::move(buffer.error()));
  return Lease(*this, std::move(*buffer));
}

void ScratchPool::return_buffer(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
}

ScratchPool::Lease::~Lease() {
  if (pool_ != nullptr) pool_->return_buffer(std::move(buffer_));
}

float* ScratchPool::Lease::floats(std::int64_t count) {
  const std::size_t bytes =
      (static_cast<std::size_t>(count) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  PAGODA_ASSERT(used_ + bytes <= buffer_.bytes(), "an op uses more scratch memory than it borrowed");
  float* part = reinterpret_cast<float*>(buffer_.as<std::byte>() + used_);
  used_ += bytes;
  return part;
}

}  // namespace pagoda::kernels
