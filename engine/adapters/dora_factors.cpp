#include "engine/adapters/dora_factors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/adapters/matrix_floats.hpp"
#include "engine/layers/device_array.hpp"
#include "kernels/ops.hpp"
#include "kernels/quantized_pack.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::adapters {
namespace {

/// The rows of a base's weight as float32, in the host's memory.
class BaseRows {
 public:
  /// Copies the weight to the host if the host cannot read the device's memory.
  static Result<BaseRows> create(const weights::LinearWeight& weight, kernels::Device& device) {
    BaseRows rows;
    rows.plain_ = weight.plain;
    if (weight.quantized != nullptr) rows.quantized_ = weight.quantized->matrix;
    if (device.shares_host_memory()) return rows;
    kernels::WeightMatrix& plain = rows.plain_;
    kernels::QuantizedMatrix& quantized = rows.quantized_;
    Status copied;
    const auto copy = [&](auto*& pointer, std::int64_t bytes) {
      if (pointer == nullptr || !copied) return;
      auto memory = layers::copy_to_host(device, pointer, static_cast<std::size_t>(bytes));
      if (!memory) {
        copied = fail(std::move(memory.error()));
        return;
      }
      pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(memory->data());
      rows.memory_.push_back(std::move(*memory));
    };
    copy(plain.data, plain.rows * plain.columns * static_cast<std::int64_t>(size_of(plain.dtype)));
    copy(plain.scales, plain.scale_bytes());
    copy(quantized.order, quantized.order_bytes());
    copy(quantized.data, quantized.data_bytes());
    copy(quantized.scales, quantized.scale_bytes());
    copy(quantized.mins, quantized.scale_bytes());
    copy(quantized.factors, quantized.factor_bytes());
    if (!copied) return fail(std::move(copied.error()));
    return rows;
  }

  bool is_quantized() const { return quantized_.data != nullptr; }
  std::int64_t rows() const { return is_quantized() ? quantized_.rows : plain_.rows; }
  std::int64_t columns() const { return is_quantized() ? quantized_.columns : plain_.columns; }

  std::vector<float> row(std::int64_t n) const {
    std::vector<float> values(static_cast<std::size_t>(columns()));
    if (is_quantized()) {
      dequantize(n, values);
      return values;
    }
    for (std::int64_t k = 0; k < plain_.columns; ++k) {
      float& value = values[static_cast<std::size_t>(k)];
      value = kernels::reference::load(plain_.data, plain_.dtype, n * plain_.columns + k);
      if (plain_.scales == nullptr) continue;
      value *= plain_.scales[n / plain_.scale_rows * plain_.scales_of_row() + k / plain_.scale_columns];
    }
    return values;
  }

 private:
  void dequantize(std::int64_t n, std::span<float> values) const {
    std::vector<float> padded(static_cast<std::size_t>(quantized_.padded_columns()));
    for (std::int64_t group = 0; group < quantized_.groups(); ++group) {
      kernels::dequantize_group(quantized_, n, group, padded.data() + group * quantized_.format.group_size);
    }
    if (quantized_.format.rotated) {
      constexpr float kBack = 1.0F / (kernels::kRotationBlock * kernels::kRotatedWeightFactor);
      for (std::size_t k = 0; k < padded.size(); k += kernels::kRotationBlock) {
        kernels::rotate_block_back(padded.data() + k, kBack);
      }
    }
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[quantized_.order == nullptr ? k : static_cast<std::size_t>(quantized_.order[k])] = padded[k];
    }
  }

  kernels::WeightMatrix plain_;
  kernels::QuantizedMatrix quantized_;
  std::vector<kernels::Buffer> memory_;
};

/// row[k] += sum over r of factors[r * stride] * matrix[r, k].
void add_product(const float* factors, std::int64_t stride, std::span<const float> matrix, std::span<float> row) {
  const float* values = matrix.data();
  for (std::size_t r = 0; r < matrix.size() / row.size(); ++r, values += row.size()) {
    const float factor = factors[static_cast<std::int64_t>(r) * stride];
    for (std::size_t k = 0; k < row.size(); ++k) row[k] += factor * values[k];
  }
}

/// Calls body(row) for all rows, on the threads of the device if they are the host's.
Status for_rows(kernels::Device& device, std::int64_t num_rows, const std::function<void(std::int64_t)>& body) {
  if (device.kind() != kernels::DeviceKind::cpu) {
    for (std::int64_t row = 0; row < num_rows; ++row) body(row);
    return {};
  }
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));
  Status done;
  (*stream)->submit([&] { done = device.ops().host_work(**stream, {.num_tasks = num_rows, .run = body}); });
  (*stream)->synchronize();
  return done ? (*stream)->status() : done;
}

/// Returns the squares of the norms of the rows of W + scale * B A.
Result<std::vector<double>> row_squares(const LoraChange& lora, const BaseRows& base, kernels::Device& device) {
  std::vector<float> a = floats_of(lora.a);
  for (float& value : a) value *= lora.scale;
  const std::vector<float> b = floats_of(lora.b);
  std::vector<double> squares(static_cast<std::size_t>(base.rows()));
  Status done = for_rows(device, base.rows(), [&](std::int64_t n) {
    std::vector<float> row = base.row(n);
    add_product(b.data() + n * lora.rank(), 1, a, row);
    double sum = 0.0;
    for (const float value : row) sum += double{value} * value;
    squares[static_cast<std::size_t>(n)] = sum;
  });
  if (!done) return fail(std::move(done.error()));
  return squares;
}

/// Returns the squares of the norms of the columns of a table whose row t is changed by scale * B A[:, t].
std::vector<double> column_squares(const LoraChange& lora, const BaseRows& base) {
  const std::int64_t vocab_size = base.rows();
  const std::int64_t width = base.columns();
  const std::vector<float> a = floats_of(lora.a);
  const std::vector<float> b = floats_of(lora.b);
  std::vector<float> b_columns(b.size());  // [rank, width]
  for (std::int64_t i = 0; i < std::ssize(b); ++i) {
    b_columns[static_cast<std::size_t>(i % lora.rank() * width + i / lora.rank())] =
        lora.scale * b[static_cast<std::size_t>(i)];
  }
  std::vector<double> squares(static_cast<std::size_t>(width));
  for (std::int64_t t = 0; t < vocab_size; ++t) {
    std::vector<float> row = base.row(t);
    add_product(a.data() + t, vocab_size, b_columns, row);
    for (std::size_t d = 0; d < row.size(); ++d) squares[d] += double{row[d]} * row[d];
  }
  return squares;
}

}  // namespace

Result<std::vector<float>> dora_factors(const LoraChange& lora, const layers::AdapterModule& module,
                                        kernels::Device& device) {
  auto base = BaseRows::create(module.weight, device);
  if (!base) return fail(std::move(base.error()));
  auto squares = module.kind == layers::AdapterModule::Kind::embedding
                     ? Result<std::vector<double>>(column_squares(lora, *base))
                     : row_squares(lora, *base, device);
  if (!squares) return fail(std::move(squares.error()));
  std::vector<float> factors = floats_of(*lora.magnitude);
  for (std::size_t n = 0; n < factors.size(); ++n) {
    const double norm = std::sqrt((*squares)[n]);
    if (!(norm > 0.0) || !std::isfinite(norm)) {
      return fail(ErrorCode::bad_file, "adapter: module " + module.name + ": row " + std::to_string(n) +
                                           " of the changed weight has the norm " + std::to_string(norm) +
                                           ", so that DoRA cannot scale it");
    }
    const double factor = factors[n] / norm;
    if (std::abs(factor) > std::numeric_limits<float>::max()) {
      return fail(ErrorCode::bad_file, "adapter: module " + module.name + ": the DoRA factor of row " +
                                           std::to_string(n) + " does not fit a float");
    }
    factors[n] = static_cast<float>(factor);
  }
  return factors;
}

}  // namespace pagoda::adapters
