#include "engine/weights/weight_converter.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/weights/run_on_device.hpp"
#include "kernels/quantized_pack.hpp"

namespace pagoda::weights {
namespace {

/// Returns whether no value becomes infinity in float16: finite values of |x| >= 65520 do. `least` holds the bits of
/// 65520 in the type that `Bits` represent, `infinity` the bits of infinity.
template <class Bits>
bool all_fit_float16(const void* data, std::int64_t count, Bits min_magnitude, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto* bits = static_cast<const Bits*>(data);
  return std::none_of(bits, bits + count, [=](Bits x) {
    const auto magnitude = static_cast<Bits>(x & static_cast<Bits>(~kSign));
    return magnitude >= min_magnitude && magnitude < infinity;
  });
}

bool fits(const WeightTensor& tensor, DType dtype) {
  if (dtype != DType::f16) return true;
  switch (tensor.dtype) {
    case DType::f32:
      return all_fit_float16<std::uint32_t>(tensor.data, tensor.elements(), 0x477FF000U, 0x7F800000U);
    case DType::bf16:
      return all_fit_float16<std::uint16_t>(tensor.data, tensor.elements(), 0x4780U, 0x7F80U);
    case DType::f16:
    case DType::fp8_e4m3:
    case DType::int8:
      return true;
  }
  return true;
}

/// Size of the rows that are dequantised at once.
constexpr std::int64_t kDequantizedBytes = std::int64_t{8} << 20;

/// The rows of a matrix that become one panel.
class PanelOfRows {
 public:
  PanelOfRows(const QuantizedRows& from, const kernels::QuantizedMatrix& matrix, std::int64_t first,
              std::int64_t num_rows) {
    PAGODA_ASSERT(!matrix.format.affine, "no file has affine weights");
    const auto columns = static_cast<std::size_t>(matrix.columns);
    for (std::int64_t i = 0; i < num_rows; ++i) {
      Row& row = rows_.emplace_back();
      const auto groups = static_cast<std::size_t>(matrix.groups());
      const auto num_scales = static_cast<std::size_t>(matrix.panel_scales() / kernels::kQuantizedPanel);
      row.q.resize(columns);
      row.scales.resize(num_scales);
      if (matrix.format.asymmetric) row.mins.resize(num_scales);
      if (matrix.format.two_level_scales) row.factors.resize(groups);
      if (matrix.format.two_level_scales && matrix.format.asymmetric) row.min_factors.resize(groups);
      from.unpack(first + i,
                  {row.q.data(), row.scales.data(), row.mins.data(), row.factors.data(), row.min_factors.data()});
      // The format may have more bits than the file: then the zero point differs.
      if (const int more = matrix.format.zero_point() - from.format()->zero_point(); more != 0) {
        for (std::uint8_t& q : row.q) q = static_cast<std::uint8_t>(q + more);
      }
      views_.push_back({row.q.data(), row.scales.data(), row.mins.data(), row.factors.data(), row.min_factors.data()});
    }
  }

  std::span<const kernels::QuantizedRow> rows() const { return views_; }

  bool is_finite() const {
    const auto finite = [](Float16 x) { return std::isfinite(to_float(x)); };
    return std::ranges::all_of(rows_, [=](const Row& row) {
      return std::ranges::all_of(row.scales, finite) && std::ranges::all_of(row.mins, finite);
    });
  }

 private:
  struct Row {
    std::vector<std::uint8_t> q;
    std::vector<Float16> scales;
    std::vector<Float16> mins;
    std::vector<std::int8_t> factors;
    std::vector<std::int8_t> min_factors;
  };

  std::vector<Row> rows_;
  std::vector<kernels::QuantizedRow> views_;
};

}  // namespace

Result<kernels::Buffer> WeightConverter::convert(const WeightTensor& tensor, DType dtype,
                                                 std::string_view kept_as) const {
  auto copy = take(kept_as, static_cast<std::size_t>(tensor.elements()) * size_of(dtype), CopyKind::plain);
  if (!copy) return fail(std::move(copy.error()));
  if (copy->is_filled) return std::move(copy->memory);
  Status status;
  if (tensor.quantized == nullptr) {
    status = run([&](kernels::Stream& stream) { return copy_plain(stream, tensor, dtype, copy->memory.data()); });
  } else if (dtype == DType::f32) {
    status = run([&](kernels::Stream& stream) {
      return dequantize(stream, tensor, 0, tensor.shape.at(0), copy->memory.as<float>());
    });
  } else {
    auto* to = copy->memory.as<std::byte>();
    status = run([&](kernels::Stream& stream) {
      return dequantize_in_pieces(stream, tensor, [&](std::int64_t first_row, const kernels::WeightMatrix& rows) {
        const WeightTensor piece{tensor.name, rows.dtype, {rows.rows, rows.columns}, rows.data};
        const auto before = static_cast<std::size_t>(first_row * rows.columns) * size_of(dtype);
        return copy_plain(stream, piece, dtype, to + before);
      });
    });
  }
  if (!status) return fail(std::move(status.error()));
  return std::move(copy->memory);
}

Result<kernels::Buffer> WeightConverter::copy(const void* from, std::size_t bytes, std::string_view kept_as) const {
  auto copy = take(kept_as, bytes, CopyKind::plain);
  if (!copy) return fail(std::move(copy.error()));
  if (!copy->is_filled) {
    const Status status = run([&](kernels::Stream& stream) {
      return device_->ops().copy(stream, {.from = from, .to = copy->memory.data(), .bytes = bytes});
    });
    if (!status) return fail(status.error());
  }
  return std::move(copy->memory);
}

Result<kernels::Buffer> WeightConverter::gather(const std::function<void(std::byte* to)>& gather, std::size_t bytes,
                                                std::string_view kept_as) const {
  auto copy = take(kept_as, bytes, CopyKind::plain);
  if (!copy) return fail(std::move(copy.error()));
  if (!copy->is_filled) gather(copy->memory.as<std::byte>());
  return std::move(copy->memory);
}

Status WeightConverter::copy_plain(kernels::Stream& stream, const WeightTensor& tensor, DType dtype, void* to) const {
  if (!fits(tensor, dtype)) {
    return fail(ErrorCode::bad_config,
                "dtype float16: tensor \"" + tensor.name + "\" has values above 65504, the largest float16", "dtype");
  }
  return device_->ops().convert(
      stream,
      {.from = tensor.data, .from_dtype = tensor.dtype, .to = to, .to_dtype = dtype, .count = tensor.elements()});
}

Result<std::shared_ptr<const QuantizedWeights>> WeightConverter::quantize(
    std::string_view kept_as, const WeightTensor& tensor, const kernels::QuantizedFormat& format) const {
  const std::int64_t rows = tensor.shape.at(0);
  const std::int64_t columns = tensor.shape.at(1);
  auto place = take(kept_as, rows, columns, format);
  if (!place) return fail(std::move(place.error()));
  if (place->is_filled) return std::move(place->weights);
  const QuantizedWeights& to = *place->weights;
  const kernels::PanelPointers memory{to.data.as<std::uint8_t>(), to.scales.as<Float16>(), to.mins.as<Float16>(),
                                      to.factors.as<std::int8_t>()};
  auto status = run([&](kernels::Stream& stream) {
    const auto quantize_rows = [&](std::int64_t first_row, const kernels::WeightMatrix& from) {
      const auto [data, scales, mins, factors] =
          kernels::panel_pointers(to.matrix, first_row / kernels::kQuantizedPanel, memory);
      return device_->ops().quantize_weights(
          stream, {.from = from, .format = format, .data = data, .scales = scales, .mins = mins, .factors = factors});
    };
    if (tensor.quantized != nullptr) return dequantize_in_pieces(stream, tensor, quantize_rows);
    return quantize_rows(0, {tensor.data, tensor.dtype, rows, columns});
  });
  if (!status) return fail(std::move(status.error()));
  return std::move(place->weights);
}

Result<std::shared_ptr<const QuantizedWeights>> WeightConverter::pack(const WeightTensor& tensor,
                                                                      const kernels::QuantizedFormat& format) const {
  const QuantizedRows& rows = *tensor.quantized;
  const std::span<const std::int32_t> order = rows.order();
  auto place = take("packed " + tensor.name, tensor.shape.at(0), tensor.shape.at(1), format, order.size_bytes());
  if (!place) return fail(std::move(place.error()));
  if (place->is_filled) return std::move(place->weights);
  QuantizedWeights& to = *place->weights;
  std::ranges::copy(order, to.order.as<std::int32_t>());
  const kernels::QuantizedMatrix& matrix = to.matrix;
  std::atomic<bool> all_finite = true;
  const auto pack = [&](std::int64_t panel) {
    const std::int64_t first = panel * kernels::kQuantizedPanel;
    const std::int64_t num_rows = std::min(kernels::kQuantizedPanel, matrix.rows - first);
    const PanelOfRows unpacked(rows, matrix, first, num_rows);
    if (!unpacked.is_finite()) all_finite = false;
    const kernels::PanelPointers memory{to.data.as<std::uint8_t>(), to.scales.as<Float16>(), to.mins.as<Float16>(),
                                        to.factors.as<std::int8_t>()};
    kernels::pack_panel(matrix, unpacked.rows(), kernels::panel_pointers(matrix, panel, memory));
  };
  auto status = run([&](kernels::Stream& stream) {
    return device_->ops().host_work(stream, {.num_tasks = matrix.panels(), .run = pack});
  });
  if (!status) return fail(std::move(status.error()));
  if (!all_finite) {
    return fail(ErrorCode::bad_file, "tensor \"" + tensor.name + "\" has a scale or minimum that is not finite");
  }
  return std::move(place->weights);
}

Result<KeptCopies::CopyMemory> WeightConverter::take(std::string_view kept_as, std::size_t bytes, CopyKind kind) const {
  if (kept_ != nullptr && !kept_as.empty()) {
    if (auto place = kept_->find(kept_as, bytes, kind)) return std::move(*place);
  }
  auto memory = kept_as.empty() ? device_->allocate(bytes, kernels::MemoryKind::device) : memory_->allocate(bytes);
  if (!memory) return fail(std::move(memory.error()));
  return KeptCopies::CopyMemory{std::move(*memory)};
}

Result<WeightConverter::QuantizedCopy> WeightConverter::take(std::string_view kept_as, std::int64_t rows,
                                                             std::int64_t columns,
                                                             const kernels::QuantizedFormat& format,
                                                             std::size_t order_bytes) const {
  QuantizedCopy place{std::make_shared<QuantizedWeights>(), true};
  QuantizedWeights& weights = *place.weights;
  weights.matrix = {nullptr, nullptr, rows, columns, format};
  struct Part {
    const char* name;
    kernels::Buffer& buffer;
    std::int64_t bytes;
  };
  const Part parts[] = {{" data", weights.data, weights.matrix.data_bytes()},
                        {" scales", weights.scales, weights.matrix.scale_bytes()},
                        {" minimums", weights.mins, weights.matrix.min_bytes()},
                        {" factors", weights.factors, weights.matrix.factor_bytes()},
                        {" order", weights.order, static_cast<std::int64_t>(order_bytes)}};
  std::vector<Part> made;
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    auto memory = take(std::string(kept_as) + part.name, static_cast<std::size_t>(part.bytes), CopyKind::quantized);
    if (!memory) return fail(std::move(memory.error()));
    if (memory->is_filled) made.push_back(part);
    place.is_filled = place.is_filled && memory->is_filled;
    part.buffer = std::move(memory->memory);
  }
  // All parts are written if one is missing. A made part must not be written, so it gets new memory.
  for (const Part& part : made) {
    if (place.is_filled) break;
    auto memory = take({}, static_cast<std::size_t>(part.bytes), CopyKind::quantized);
    if (!memory) return fail(std::move(memory.error()));
    part.buffer = std::move(memory->memory);
  }
  weights.matrix.data = weights.data.as<std::uint8_t>();
  weights.matrix.scales = weights.scales.as<Float16>();
  weights.matrix.mins = weights.mins.as<Float16>();
  weights.matrix.factors = weights.factors.as<std::int8_t>();
  weights.matrix.order = weights.order.as<std::int32_t>();
  return place;
}

Status WeightConverter::dequantize(kernels::Stream& stream, const WeightTensor& tensor, std::int64_t first_row,
                                   std::int64_t num_rows, float* to) const {
  const std::int64_t columns = tensor.shape.at(1);
  const auto dequantize_row = [&](std::int64_t row) {
    tensor.quantized->dequantize(first_row + row, to + row * columns);
  };
  return device_->ops().host_work(stream, {.num_tasks = num_rows, .run = dequantize_row});
}

Status WeightConverter::dequantize_in_pieces(
    kernels::Stream& stream, const WeightTensor& tensor,
    const std::function<Status(std::int64_t first_row, const kernels::WeightMatrix& rows)>& use) const {
  const std::int64_t rows = tensor.shape.at(0);
  const std::int64_t columns = tensor.shape.at(1);
  const std::int64_t row_bytes = columns * std::int64_t{sizeof(float)};
  const std::int64_t panels = std::max<std::int64_t>(1, kDequantizedBytes / (kernels::kQuantizedPanel * row_bytes));
  const std::int64_t piece_rows = std::min(rows, panels * kernels::kQuantizedPanel);
  auto memory = device_->allocate(static_cast<std::size_t>(piece_rows * row_bytes), kernels::MemoryKind::device);
  if (!memory) return fail(std::move(memory.error()));
  for (std::int64_t first_row = 0; first_row < rows; first_row += piece_rows) {
    const std::int64_t num_rows = std::min(piece_rows, rows - first_row);
    if (Status status = dequantize(stream, tensor, first_row, num_rows, memory->as<float>()); !status) return status;
    if (Status status = use(first_row, {memory->data(), DType::f32, num_rows, columns}); !status) return status;
  }
  return {};
}

Status WeightConverter::run(const std::function<Status(kernels::Stream&)>& issue) const {
  return run_on_device(*device_, issue);
}

}  // namespace pagoda::weights
