#include "engine/calibration/gptq.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace pagoda::calibration {
namespace {

constexpr std::int64_t kBlock = 128;  ///< columns that are processed at once
constexpr float kDamping = 0.01F;
constexpr int kTries = 6;  ///< each try damps ten times as much as the try before

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Result<kernels::Buffer> floats(kernels::Device& device, std::int64_t count) {
  return device.allocate(index(count) * sizeof(float), kernels::MemoryKind::host);
}

/// Computes out += x * weight^T, or out = x * weight^T without `accumulate`. x: [rows, in]; weight: [columns, in]; out:
/// [rows, columns], whose rows are `out_stride` apart.
Status add_product(const kernels::Ops& ops, kernels::Stream& stream, const float* x, std::int64_t rows, std::int64_t in,
                   const float* weight, std::int64_t columns, float* out, std::int64_t out_stride,
                   bool accumulate = true) {
  if (rows == 0 || columns == 0) return {};
  const kernels::WeightMatrix matrix{weight, DType::f32, columns, in};
  return ops.linear(stream, {.x = x,
                             .num_tokens = rows,
                             .in = in,
                             .weights = {&matrix, 1},
                             .biases = {},
                             .out = out,
                             .out_stride = out_stride,
                             .accumulate = accumulate});
}

/// One block on the diagonal: B = U D U^T, U unit upper triangular, in double precision.
struct DiagonalBlock {
  std::int64_t size = 0;
  std::vector<double> u;  // [size, size]
  std::vector<double> d;  // [size]

  DiagonalBlock(const float* h, std::int64_t stride, std::int64_t block_size)
      : size(block_size), u(index(block_size * block_size)), d(index(block_size)) {
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) at(i, j) = h[i * stride + j];
    }
  }

  double& at(std::int64_t i, std::int64_t j) { return u[index(i * size + j)]; }

  /// Returns false when B is not positive definite, which it must be.
  bool factorize() {
    for (std::int64_t j = size - 1; j >= 0; --j) {
      const double pivot = at(j, j);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      d[index(j)] = pivot;
      at(j, j) = 1;
      for (std::int64_t i = 0; i < j; ++i) at(i, j) /= pivot;
      for (std::int64_t i = 0; i < j; ++i) {
        const double factor = at(i, j) * pivot;
        for (std::int64_t k = i; k < j; ++k) at(i, k) -= factor * at(k, j);
      }
    }
    return true;
  }

  /// Returns U^-1 with row j divided by D[j]: the weight [size, size] by which a product computes x (U^T)^-1 D^-1.
  std::vector<float> solver() {
    std::vector<double> inverse(index(size * size));
    for (std::int64_t j = 0; j < size; ++j) {
      inverse[index(j * size + j)] = 1;
      for (std::int64_t i = j - 1; i >= 0; --i) {
        double sum = 0;
        for (std::int64_t k = i + 1; k <= j; ++k) sum += at(i, k) * inverse[index(k * size + j)];
        inverse[index(i * size + j)] = -sum;
      }
    }
    std::vector<float> rows(index(size * size));
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        rows[index(i * size + j)] = static_cast<float>(inverse[index(i * size + j)] / d[index(i)]);
      }
    }
    return rows;
  }
};

/// Copies [rows, columns] out of or into a wider matrix.
void copy_block(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride, std::int64_t rows,
                std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, columns, to + r * to_stride);
}

}  // namespace

Result<ErrorFeedback> ErrorFeedback::factorize(kernels::Device& device, kernels::Stream& stream,
                                               kernels::Buffer products, std::int64_t size) {
  PAGODA_ASSERT(products.bytes() >= index(size * size) * sizeof(float), "products of all pairs of columns");
  const auto* const h = products.as<float>();
  double sum = 0;
  for (std::int64_t k = 0; k < size; ++k) sum += h[k * size + k];
  if (!std::isfinite(sum)) return fail(ErrorCode::bad_file, "an input of the layer is not finite");
  const double mean = sum > 0 ? sum / static_cast<double>(size) : 1;
  ErrorFeedback feedback;
  feedback.size_ = size;
  double damping = double{kDamping} * mean;
  for (int i = 0; i < kTries; ++i, damping *= 10) {
    auto copy = floats(device, size * size);
    if (!copy) return fail(std::move(copy.error()));
    feedback.a_ = std::move(*copy);
    float* const a = feedback.a_.as<float>();
    std::copy_n(h, size * size, a);
    for (std::int64_t k = 0; k < size; ++k) a[k * size + k] += static_cast<float>(damping);
    const Status status = feedback.factorize_damped(device, stream);
    if (status) return feedback;
    if (status.error().code != ErrorCode::bad_file) return fail(status.error());
  }
  return fail(ErrorCode::bad_file, "the products of the layer's inputs cannot be factorised");
}

/// Goes from the last block to the first. Subtracts what a block accounts for from the rest of H above and before it.
Status ErrorFeedback::factorize_damped(kernels::Device& device, kernels::Stream& stream) {
  float* const h = a_.as<float>();
  d_.assign(index(size_), 0);
  auto above = floats(device, 3 * size_ * kBlock);
  if (!above) return fail(std::move(above.error()));
  float* const v = above->as<float>();           // A above the block
  float* const x = v + size_ * kBlock;           // H above the block
  float* const scaled = v + 2 * size_ * kBlock;  // -A D
  for (std::int64_t begin = (size_ - 1) / kBlock * kBlock; begin >= 0; begin -= kBlock) {
    const std::int64_t width = std::min(kBlock, size_ - begin);
    DiagonalBlock block(h + begin * size_ + begin, size_, width);
    if (!block.factorize()) return fail(ErrorCode::bad_file, "not positive definite");
    const std::vector<float> solver = block.solver();
    copy_block(h + begin, size_, x, width, begin, width);
    Status status = add_product(device.ops(), stream, x, begin, width, solver.data(), width, v, width, false);
    for (std::int64_t r = 0; r < begin; ++r) {
      for (std::int64_t j = 0; j < width; ++j) {
        scaled[r * width + j] = -v[r * width + j] * static_cast<float>(block.d[index(j)]);
      }
    }
    if (status) status = add_product(device.ops(), stream, scaled, begin, width, v, begin, h, size_);
    if (!status) return status;
    copy_block(v, width, h + begin, size_, begin, width);
    for (std::int64_t i = 0; i < width; ++i) {
      d_[index(begin + i)] = static_cast<float>(block.d[index(i)]);
      for (std::int64_t j = 0; j < width; ++j) h[(begin + i) * size_ + begin + j] = static_cast<float>(block.at(i, j));
    }
  }
  return {};
}

namespace {

/// One row of a GptqMatrix.
struct MatrixRow {
  std::uint8_t* q;
  float* scales;
  std::uint8_t* zeros;  // null in a format with minimums
  float* mins;          // null in a format without minimums

  MatrixRow(GptqMatrix& matrix, std::int64_t row, std::int64_t columns, std::int64_t groups)
      : q(matrix.q.data() + row * columns),
        scales(matrix.scales.data() + row * groups),
        zeros(matrix.zeros.empty() ? nullptr : matrix.zeros.data() + row * groups),
        mins(matrix.mins.empty() ? nullptr : matrix.mins.data() + row * groups) {}

  /// Returns false when the grid is not finite.
  bool set_group(std::int64_t group, const GptqGrid& grid) const {
    const bool finite = std::isfinite(grid.scale) && std::isfinite(grid.min);
    scales[group] = grid.scale;
    if (zeros != nullptr) zeros[group] = static_cast<std::uint8_t>(finite ? grid.zero : 0);
    if (mins != nullptr) mins[group] = grid.min;
    return finite;
  }
};

/// The columns [begin, end) of one row. `target`: the weights with the corrections for earlier errors; `weights`: the
/// weights without corrections. The errors of the quantised weights go to `errors` [end - begin].
struct RowOfBlock {
  const ErrorFeedback& feedback;
  const GptqFormat& format;
  std::int64_t begin;
  std::int64_t end;

  /// Returns false when a value is not finite.
  bool quantize(float* target, const float* weights, float* errors, const MatrixRow& row) const {
    GptqGrid grid;
    bool finite = true;
    for (std::int64_t k = begin; k < end; ++k) {
      if (k % format.group_size == 0) {
        const std::span<const float> group(target + k, index(format.group_size));
        grid = best_grid(group, feedback.importance().data() + k, format);
        finite = row.set_group(k / format.group_size, grid) && finite;
      }
      const float steps = grid.steps(target[k]);
      finite = finite && std::isfinite(target[k]);
      row.q[k] = static_cast<std::uint8_t>(finite ? steps + grid.zero : 0);
      const float error = weights[k] - grid.value(steps);
      errors[k - begin] = error;
      const float* const a = feedback.row(k);
      for (std::int64_t j = k + 1; j < end; ++j) target[j] += error * a[j];
    }
    return finite;
  }
};

}  // namespace

Result<GptqMatrix> quantize_gptq(kernels::Device& device, kernels::Stream& stream, float* weights, std::int64_t rows,
                                 const ErrorFeedback& feedback, const GptqFormat& format) {
  const std::int64_t columns = feedback.size();
  PAGODA_ASSERT(format.group_size > 0 && columns % format.group_size == 0, "whole groups");
  PAGODA_ASSERT(format.asymmetric || !format.minimums, "symmetric groups have no minimum");
  // A block is whole groups: a group's scale is chosen after all earlier columns have corrected its weights.
  const std::int64_t block = (kBlock + format.group_size - 1) / format.group_size * format.group_size;
  const std::int64_t groups = columns / format.group_size;
  GptqMatrix matrix{.q = std::vector<std::uint8_t>(index(rows * columns)),
                    .scales = std::vector<float>(index(rows * groups)),
                    .zeros = std::vector<std::uint8_t>(format.minimums ? 0 : index(rows * groups)),
                    .mins = std::vector<float>(format.minimums ? index(rows * groups) : 0)};
  auto memory = floats(device, rows * columns + rows * block + columns * block);
  if (!memory) return fail(std::move(memory.error()));
  float* const targets = memory->as<float>();
  float* const errors = targets + rows * columns;    // [rows, width of the block]
  float* const feedback_to = errors + rows * block;  // [columns after the block, width]
  std::copy_n(weights, rows * columns, targets);
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t end = std::min(columns, begin + block);
    const std::int64_t width = end - begin;
    const RowOfBlock part{feedback, format, begin, end};
    std::atomic<bool> finite = true;
    Status status = device.ops().host_work(
        stream, {.num_tasks = rows, .run = [&](std::int64_t row) {
                   if (!part.quantize(targets + row * columns, weights + row * columns, errors + row * width,
                                      MatrixRow(matrix, row, columns, groups))) {
                     finite = false;
                   }
                 }});
    if (!status) return fail(std::move(status.error()));
    if (!finite) return fail(ErrorCode::bad_file, "a weight is not finite or too large to be quantised");
    for (std::int64_t j = 0; j < width; ++j) {
      const float* const a = feedback.row(begin + j);
      for (std::int64_t k = end; k < columns; ++k) feedback_to[(k - end) * width + j] = a[k];
    }
    status = add_product(device.ops(), stream, errors, rows, width, feedback_to, columns - end, targets + end, columns);
    if (!status) return fail(std::move(status.error()));
  }
  return matrix;
}

}  // namespace pagoda::calibration
