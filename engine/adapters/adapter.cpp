#include "engine/adapters/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/reference/element.hpp"

namespace pagoda::adapters {
namespace {

/// Returns false if an element is too large for `dtype`.
bool round_matrix(AdapterMatrix& matrix, DType dtype) {
  if (matrix.dtype != DType::f32) return true;
  const std::int64_t count = matrix.rows * matrix.columns;
  std::vector<std::byte> rounded(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    kernels::reference::store(rounded.data(), dtype, i, kernels::reference::load(matrix.data.data(), DType::f32, i));
    if (!std::isfinite(kernels::reference::load(rounded.data(), dtype, i))) return false;
  }
  matrix.data = std::move(rounded);
  matrix.dtype = dtype;
  return true;
}

}  // namespace

std::int64_t largest_rank(const Adapter& adapter) {
  std::int64_t rank = 0;
  for (const ModuleChange& change : adapter.changes) {
    if (change.lora) rank = std::max(rank, change.lora->rank());
  }
  return rank;
}

Status round_matrices(Adapter& adapter, DType dtype) {
  for (ModuleChange& change : adapter.changes) {
    if (!change.lora) continue;
    if (!round_matrix(change.lora->a, dtype) || !round_matrix(change.lora->b, dtype)) {
      return fail(ErrorCode::bad_file, "adapter: module " + change.module +
                                           ": an element of its matrices is too large " + "for " +
                                           std::string(to_string(dtype)) + "; use lora_dtype float32");
    }
  }
  return {};
}

}  // namespace pagoda::adapters
