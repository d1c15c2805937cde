#include "engine/calibration/gptq.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace pagoda::calibration {
namespace {

constexpr std::int64_t kBlock = 128;  ///< columns that are worked on at once
constexpr float kDamping = 0.01F;
constexpr int kTries = 6;  ///< each damps ten times as much as the one before

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Result<kernels::Buffer> floats(kernels::Device& device, std::int64_t count) {
  return device.allocate(index(count) * sizeof(float), kernels::MemoryKind::host);
}

/// out[:, first column on] += x * weight^T, x [rows, in], weight [columns, in].
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

  /// False when B is not positive definite, as it must be.
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

  /// U^-1 with row j divided by D[j]: what x (U^T)^-1 D^-1 multiplies x with, as a weight [size, size].
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
  if (!std::isfinite(sum)) return fail(ErrorCode::bad_file, "what goes into the layer is not finite");
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
  return fail(ErrorCode::bad_file, "the products of what goes into the layer cannot be factorised");
}

/// Block after block from the last: what is left of H above and before a block loses what the block accounts for.
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

/// The integers of one group and what they stand for.
struct Grid {
  float scale = 0;  ///< as it is stored; 0: all weights are 0
  float zero = 0;
  float highest = 0;

  /// The integer that w is nearest to, less the zero.
  float steps(float w) const { return scale == 0 ? 0 : std::clamp(std::nearbyint(w / scale), -zero, highest - zero); }
};

float rounded(float scale, DType dtype) {
  return dtype == DType::bf16 ? to_float(to_bf16(scale)) : to_float(to_f16(scale));
}

/// Of grids whose ends lie at the weights' ends or nearer, the one of least squared error, column k counting
/// importance[k].
class GridSearch {
 public:
  GridSearch(std::span<const float> weights, const float* importance, const GptqFormat& format)
      : weights_(weights), importance_(importance), highest_(static_cast<float>((1 << format.bits) - 1)) {
    constexpr std::array kFactors{1.0F, 0.95F, 0.9F, 0.85F, 0.8F, 0.75F, 0.7F};
    const auto [least, most] = std::ranges::minmax(weights);
    const float middle = static_cast<float>(1 << (format.bits - 1));
    // The value of highest magnitude is at the end that is one step further away.
    const float extreme = -least > most ? least : most;
    const float lowest = std::min(least, 0.0F);
    const float width = std::max(most, 0.0F) - lowest;
    for (const float factor : kFactors) {
      try_grid({rounded(extreme / -middle * factor, format.scale_dtype), middle, highest_});
      if (format.asymmetric) {
        const float scale = rounded(width / highest_ * factor, format.scale_dtype);
        const float zero = scale == 0 ? middle : std::clamp(std::nearbyint(-lowest * factor / scale), 0.0F, highest_);
        try_grid({scale, zero, highest_});
      }
      if (format.bits == 8) break;  // nothing is gained by cutting
    }
  }

  const Grid& best() const { return best_; }

 private:
  void try_grid(const Grid& grid) {
    float error = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const float difference = weights_[k] - grid.scale * grid.steps(weights_[k]);
      error += importance_[k] * difference * difference;
    }
    if (has_best_ && !(error < least_)) return;
    best_ = grid;
    least_ = error;
    has_best_ = true;
  }

  std::span<const float> weights_;
  const float* importance_;
  float highest_;
  Grid best_;
  float least_ = 0;
  bool has_best_ = false;
};

/// The columns [begin, end) of one row. `target`: the weights with what earlier errors ask for; `weights`: as they
/// were; what they lack is written to `errors` [end - begin].
struct RowOfBlock {
  const ErrorFeedback& feedback;
  const GptqFormat& format;
  std::int64_t begin;
  std::int64_t end;

  /// False when something is not finite.
  bool quantize(float* target, const float* weights, float* errors, std::uint8_t* q, float* scales,
                std::uint8_t* zeros) const {
    Grid grid;
    bool finite = true;
    for (std::int64_t k = begin; k < end; ++k) {
      if (k % format.group_size == 0) {
        const std::span<const float> group(target + k, index(format.group_size));
        grid = GridSearch(group, feedback.importance().data() + k, format).best();
        scales[k / format.group_size] = grid.scale;
        finite = finite && std::isfinite(grid.scale);
        zeros[k / format.group_size] = static_cast<std::uint8_t>(finite ? grid.zero : 0);
      }
      const float steps = grid.steps(target[k]);
      finite = finite && std::isfinite(target[k]);
      q[k] = static_cast<std::uint8_t>(finite ? steps + grid.zero : 0);
      const float error = weights[k] - grid.scale * steps;
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
  // A block is whole groups: a group's scale is chosen when all that earlier columns ask for is in.
  const std::int64_t block = (kBlock + format.group_size - 1) / format.group_size * format.group_size;
  const std::int64_t groups = columns / format.group_size;
  GptqMatrix matrix{std::vector<std::uint8_t>(index(rows * columns)), std::vector<float>(index(rows * groups)),
                    std::vector<std::uint8_t>(index(rows * groups))};
  auto memory = floats(device, rows * columns + rows * block + columns * block);
  if (!memory) return fail(std::move(memory.error()));
  float* const targets = memory->as<float>();
  float* const errors = targets + rows * columns;    // [rows, width of the block]
  float* const feedback_to = errors + rows * block;  // [columns behind the block, width]
  std::copy_n(weights, rows * columns, targets);
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t end = std::min(columns, begin + block);
    const std::int64_t width = end - begin;
    const RowOfBlock part{feedback, format, begin, end};
    std::atomic<bool> finite = true;
    Status status = device.ops().host_work(
        stream, {.num_tasks = rows, .run = [&](std::int64_t row) {
                   if (!part.quantize(targets + row * columns, weights + row * columns, errors + row * width,
                                      matrix.q.data() + row * columns, matrix.scales.data() + row * groups,
                                      matrix.zeros.data() + row * groups)) {
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
