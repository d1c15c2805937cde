#include "io/model_files/quantized/quantized_module.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "io/model_files/file_text.hpp"
#include "io/model_files/quantized/quantized_rows.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::io {
namespace {

using Shape = std::vector<std::int64_t>;
using Rows = std::shared_ptr<const weights::QuantizedRows>;

constexpr std::int64_t kWordBytes = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

DType float_type(std::string_view name) {
  return name == "F16" ? DType::f16 : name == "BF16" ? DType::bf16 : DType::f32;
}

/// Reads the tensors of one module from a checkpoint. `status` keeps the first error; results of later calls must not
/// be used.
class ModuleReader {
 public:
  ModuleReader(const Checkpoint& checkpoint, std::string module, std::int64_t num_rows, std::int64_t num_columns)
      : rows(num_rows), columns(num_columns), checkpoint_(checkpoint), module_(std::move(module)) {}

  const std::int64_t rows;
  const std::int64_t columns;
  Status status;

  bool has(const char* ending) const { return checkpoint_.contains(module_ + ending); }

  /// Returns a tensor that must have one of `types` and one of `shapes`.
  StoredTensor tensor(const char* ending, std::initializer_list<std::string_view> types,
                      std::initializer_list<Shape> shapes) {
    const auto found = checkpoint_.stored(module_ + ending);
    if (!found) {
      bad(ending, "is missing");
      return {};
    }
    if (std::ranges::find(types, found->dtype) == types.end()) {
      std::string list;
      for (const auto type : types) list.append(list.empty() ? "" : ", ").append(type);
      bad(ending, "dtype " + std::string(found->dtype) + " is not " + list);
    }
    const auto fits = [&](const Shape& shape) { return std::ranges::equal(shape, found->shape); };
    if (std::ranges::none_of(shapes, fits)) {
      std::string list;
      for (const auto& shape : shapes) list.append(list.empty() ? "" : " or ").append(shape_text(shape));
      bad(ending, "shape " + shape_text(found->shape) + " does not fit the config, which asks for " + list);
    }
    return *found;
  }

  StoredTensor floats(const char* ending, std::initializer_list<Shape> shapes) {
    return tensor(ending, {"F16", "BF16", "F32"}, shapes);
  }

  void bad(const char* ending, const std::string& reason) {
    if (!status) return;
    const std::string name = module_ + ending;
    status = fail(ErrorCode::bad_file, checkpoint_.path_of(name) + ": tensor " + quote(name) + ": " + reason);
  }

  std::optional<StoredTensor> find(const char* ending) const { return checkpoint_.stored(module_ + ending); }

 private:
  const Checkpoint& checkpoint_;
  std::string module_;
};

Result<Rows> finish(const ModuleReader& module, IntegerMatrix matrix) {
  if (!module.status) return fail(module.status.error());
  return std::make_shared<IntegerRows>(std::move(matrix));
}

/// Reads the group of each column; nothing where groups are in order or all entries are -1.
std::vector<std::int32_t> read_group_of(ModuleReader& module, const char* ending, std::int64_t group_size,
                                        std::int64_t groups) {
  if (!module.has(ending)) return {};
  const auto stored = module.tensor(ending, {"I32"}, {{module.columns}});
  if (!module.status) return {};
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(module.columns));
  std::memcpy(group_of.data(), stored.data.data(), stored.data.size());
  if (std::ranges::all_of(group_of, [](std::int32_t group) { return group == -1; })) return {};
  bool in_order = true;
  for (std::int64_t k = 0; k < module.columns; ++k) {
    const std::int32_t group = group_of[static_cast<std::size_t>(k)];
    if (group < 0 || group >= groups) {
      module.bad(ending, "column " + std::to_string(k) + " is of group " + std::to_string(group) + " of " +
                             std::to_string(groups));
      return {};
    }
    in_order = in_order && group == k / group_size;
  }
  if (in_order) group_of.clear();
  return group_of;
}

/// Checks that a dimension that is packed into words fills them.
void check_fills_words(ModuleReader& module, const char* ending, std::int64_t size, int bits) {
  if (size * bits % 32 == 0) return;
  module.bad(ending, std::to_string(size) + " integers of " + std::to_string(bits) + " bits do not fill words of 32");
}

/// Opens the parts that AWQ and GPTQ share: scales [groups, rows] and zero points [groups, rows], packed along rows.
IntegerMatrix open_transposed(ModuleReader& module, const QuantizationConfig& config,
                              const std::array<std::uint8_t, 8>& lanes) {
  const std::int64_t rows = module.rows;
  const std::int64_t group_size = config.group_size == 0 ? module.columns : config.group_size;
  IntegerMatrix matrix{.rows = rows, .columns = module.columns, .group_size = group_size};
  check_fills_words(module, ".qzeros", rows, config.bits);
  const std::int64_t row_words = rows * config.bits / 32;
  const auto zeros = module.tensor(".qzeros", {"I32"}, {{matrix.groups(), row_words}});
  matrix.zeros = StoredIntegers{.data = zeros.data.data(),
                                .bits = config.bits,
                                .along_rows = true,
                                .row_step = kWordBytes,
                                .column_step = row_words * kWordBytes,
                                .lanes = lanes};
  const auto scales = module.floats(".scales", {{matrix.groups(), rows}});
  matrix.scales = {.data = scales.data.data(), .dtype = float_type(scales.dtype), .row_step = 1, .column_step = rows};
  return matrix;
}

constexpr std::array<std::uint8_t, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};

/// Opens qweight [columns, rows / 8]: the words of a column hold the rows 0 2 4 6 1 3 5 7, from the low bits upwards.
Result<Rows> open_awq(ModuleReader& module, const QuantizationConfig& config) {
  constexpr std::array<std::uint8_t, 8> kLanes{0, 4, 1, 5, 2, 6, 3, 7};
  IntegerMatrix matrix = open_transposed(module, config, kLanes);
  const std::int64_t row_words = module.rows * config.bits / 32;
  const auto q = module.tensor(".qweight", {"I32"}, {{module.columns, row_words}});
  matrix.q = {.data = q.data.data(),
              .bits = config.bits,
              .along_rows = true,
              .row_step = kWordBytes,
              .column_step = row_words * kWordBytes,
              .lanes = kLanes};
  return finish(module, std::move(matrix));
}

/// Opens qweight [columns * bits / 32, rows]: a word holds neighbouring columns.
Result<Rows> open_gptq(ModuleReader& module, const QuantizationConfig& config) {
  IntegerMatrix matrix = open_transposed(module, config, kInOrder);
  matrix.zeros->add = config.zeros_lack_one ? 1 : 0;
  check_fills_words(module, ".qweight", module.columns, config.bits);
  const auto q = module.tensor(".qweight", {"I32"}, {{module.columns * config.bits / 32, module.rows}});
  matrix.q = {
      .data = q.data.data(), .bits = config.bits, .row_step = kWordBytes, .column_step = module.rows * kWordBytes};
  matrix.group_of = read_group_of(module, ".g_idx", matrix.group_size, matrix.groups());
  return finish(module, std::move(matrix));
}

/// Scales of a matrix: one for all, one per row, or one per row and group of columns. The number of groups is taken
/// from the tensor's shape.
struct Scales {
  StoredFloats floats;
  std::int64_t groups = 1;  ///< number of groups of a row
};

Scales read_scales(ModuleReader& module, const char* ending) {
  const auto found = module.find(ending);
  std::int64_t groups = 1;
  if (found && found->shape.size() == 2 && found->shape[0] == module.rows) groups = found->shape[1];
  const auto scales = module.floats(ending, {{}, {1}, {1, 1}, {module.rows}, {module.rows, groups}});
  if (!module.status) return {};
  if (groups < 1 || module.columns % groups != 0) {
    module.bad(ending, std::to_string(groups) + " scales do not divide the " + std::to_string(module.columns) +
                           " columns of a row");
    return {};
  }
  const bool is_one = scales.data.size() == size_of(float_type(scales.dtype));
  return {{.data = scales.data.data(),
           .dtype = float_type(scales.dtype),
           .row_step = is_one ? 0 : groups,
           .column_step = is_one ? 0 : 1},
          groups};
}

/// Reads zero points of compressed-tensors: packed along rows, or signed bytes.
std::optional<StoredIntegers> read_zeros(ModuleReader& module, int bits, std::int64_t groups) {
  constexpr const char* kName = ".weight_zero_point";
  const auto found = module.find(kName);
  if (!found) return std::nullopt;
  if (found->dtype == "I32") {
    const auto zeros = module.tensor(kName, {"I32"}, {{ceil_div(module.rows * bits, 32), groups}});
    return StoredIntegers{.data = zeros.data.data(),
                          .bits = bits,
                          .along_rows = true,
                          .row_step = groups * kWordBytes,
                          .column_step = kWordBytes};
  }
  const auto zeros = module.tensor(kName, {"I8"}, {{}, {1}, {1, 1}, {module.rows}, {module.rows, groups}});
  const bool is_one = zeros.data.size() == 1;
  return StoredIntegers{.data = zeros.data.data(),
                        .bits = 8,
                        .word_bits = 8,
                        .row_step = is_one ? 0 : groups,
                        .column_step = is_one ? 0 : 1,
                        .add = 1U << (bits - 1)};
}

/// Reads int8 [rows, columns] as integers that count from 0.
StoredIntegers read_bytes(ModuleReader& module) {
  const auto q = module.tensor(".weight", {"I8"}, {{module.rows, module.columns}});
  return {.data = q.data.data(), .bits = 8, .word_bits = 8, .row_step = module.columns, .column_step = 1, .add = 0x80};
}

/// Reads weight_packed [rows, columns * bits / 32]: a word holds neighbouring columns as integers that count from 0.
StoredIntegers read_packed(ModuleReader& module) {
  constexpr const char* kName = ".weight_packed";
  const std::int64_t four = ceil_div(module.columns * 4, 32);
  const std::int64_t eight = ceil_div(module.columns * 8, 32);
  const auto q = module.tensor(kName, {"I32"}, {{module.rows, four}, {module.rows, eight}});
  if (!module.status) return {};
  const std::int64_t words = q.shape[1];
  // Four columns or fewer take one word with either number of bits.
  if (four == eight) module.bad(kName, "rows of one word do not show whether values have 4 or 8 bits");
  return {
      .data = q.data.data(), .bits = words == four ? 4 : 8, .row_step = words * kWordBytes, .column_step = kWordBytes};
}

void check_weight_shape(ModuleReader& module) {
  constexpr const char* kName = ".weight_shape";
  if (!module.has(kName)) return;
  const auto stored = module.tensor(kName, {"I64", "I32"}, {{2}});
  if (!module.status) return;
  std::array<std::int64_t, 2> shape{};
  if (stored.dtype == "I64") {
    std::memcpy(shape.data(), stored.data.data(), sizeof shape);
  } else {
    std::array<std::int32_t, 2> narrow{};
    std::memcpy(narrow.data(), stored.data.data(), sizeof narrow);
    shape = {narrow[0], narrow[1]};
  }
  if (shape == std::array{module.rows, module.columns}) return;
  module.bad(kName, shape_text(shape) + " does not fit the config, which asks for " +
                        shape_text(Shape{module.rows, module.columns}));
}

Result<Rows> open_float8(ModuleReader& module, const QuantizationConfig& config, const char* scale_name) {
  const auto stored = module.tensor(".weight", {"F8_E4M3"}, {{module.rows, module.columns}});
  Float8Matrix matrix{.rows = module.rows, .columns = module.columns, .data = stored.data.data()};
  const bool has_blocks = config.block_rows != 0;
  const Shape blocks =
      has_blocks ? Shape{ceil_div(module.rows, config.block_rows), ceil_div(module.columns, config.block_columns)}
                 : Shape{};
  const auto found = module.find(scale_name);
  if (has_blocks && found && std::ranges::equal(found->shape, blocks)) {
    const auto scales = module.floats(scale_name, {blocks});
    matrix.scales = {
        .data = scales.data.data(), .dtype = float_type(scales.dtype), .row_step = blocks[1], .column_step = 1};
    matrix.block_rows = config.block_rows;
    matrix.block_columns = config.block_columns;
  } else {
    const Scales scales = read_scales(module, scale_name);
    matrix.scales = scales.floats;
    matrix.block_columns = module.columns / scales.groups;
  }
  if (!module.status) return fail(module.status.error());
  return std::make_shared<Float8Rows>(matrix);
}

/// Checks that the matrix [block, block] which blocks of x are multiplied with is the kernels' matrix.
void check_rotation(ModuleReader& module, const std::string& ending) {
  constexpr std::int64_t kBlock = kernels::kRotationBlock;
  const auto stored = module.floats(ending.c_str(), {{kBlock, kBlock}});
  if (!module.status) return;
  if (module.columns % kBlock != 0) module.bad(ending.c_str(), "blocks of 32 do not divide the columns of the module");
  const StoredFloats matrix{
      .data = stored.data.data(), .dtype = float_type(stored.dtype), .row_step = kBlock, .column_step = 1};
  for (std::int64_t i = 0; i < kBlock; ++i) {
    std::array<float, kBlock> row{};
    row[static_cast<std::size_t>(i)] = 1;
    kernels::rotate_block(row.data(), 1);
    for (std::int64_t j = 0; j < kBlock; ++j) {
      if (matrix.at(i, j) == row[static_cast<std::size_t>(j)]) continue;
      return module.bad(ending.c_str(), "is not the rotation that pagoda quantize writes, the only one supported");
    }
  }
}

/// Opens weight_packed [rows, columns / 2] in bytes and weight_scale [rows, columns / 32].
Result<Rows> open_microscaled(ModuleReader& module) {
  constexpr const char* kScale = ".weight_scale";
  constexpr std::int64_t kGroup = MicroscaledRows::kGroup;
  const auto data = module.tensor(".weight_packed", {"U8"}, {{module.rows, module.columns / 2}});
  const auto exponents = module.tensor(kScale, {"U8", "F8_E8M0"}, {{module.rows, ceil_div(module.columns, kGroup)}});
  if (module.columns % kGroup != 0) {
    module.bad(kScale, "groups of 32 do not divide the " + std::to_string(module.columns) + " columns of a row");
  }
  check_weight_shape(module);
  if (!module.status) return fail(module.status.error());
  auto rows = std::make_shared<MicroscaledRows>(
      MicroscaledMatrix{module.rows, module.columns, data.data.data(), exponents.data.data()});
  if (rows->is_finite()) return rows;
  module.bad(kScale, "has a scale that is not a number, or makes weights that float32 does not hold");
  return fail(module.status.error());
}

Result<Rows> open_compressed(ModuleReader& module, const QuantizationConfig& config) {
  if (const auto packed = module.find(".weight_packed"); packed && packed->dtype == "U8") {
    if (!config.rotation.empty()) module.bad(".weight_packed", "floats of 4 bits cannot be rotated");
    return open_microscaled(module);
  }
  const auto weight = module.find(".weight");
  if (weight && weight->dtype == "F8_E4M3") {
    if (!config.rotation.empty()) module.bad(".weight", "8-bit floats cannot be rotated");
    return open_float8(module, config, ".weight_scale");
  }
  IntegerMatrix matrix{.rows = module.rows, .columns = module.columns};
  matrix.q = module.has(".weight_packed") ? read_packed(module) : read_bytes(module);
  check_weight_shape(module);
  const Scales scales = read_scales(module, ".weight_scale");
  matrix.scales = scales.floats;
  matrix.group_size = module.columns / scales.groups;
  matrix.zeros = read_zeros(module, matrix.q.bits, scales.groups);
  matrix.group_of = read_group_of(module, ".weight_g_idx", matrix.group_size, scales.groups);
  if (!config.rotation.empty()) {
    check_rotation(module, rotation_ending(config));
    if (!matrix.group_of.empty()) module.bad(".weight_g_idx", "columns out of order cannot be rotated");
    matrix.rotated = true;
  }
  return finish(module, std::move(matrix));
}

Result<Rows> open_fp8(ModuleReader& module, const QuantizationConfig& config) {
  return open_float8(module, config, module.has(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale");
}

/// The scale of a row is the greatest magnitude in the row, which the integer 127 represents.
Result<Rows> open_int8_rows(ModuleReader& module, const QuantizationConfig&) {
  IntegerMatrix matrix{.rows = module.rows, .columns = module.columns, .group_size = module.columns};
  matrix.q = read_bytes(module);
  const auto scales = module.tensor(".SCB", {"F32"}, {{module.rows}});
  matrix.scales = {.data = scales.data.data(), .dtype = DType::f32, .row_step = 1, .times = 1.0F / 127.0F};
  if (module.has(".weight_format")) {
    const auto format = module.tensor(".weight_format", {"U8"}, {{}, {1}});
    if (module.status && format.data[0] != std::byte{0}) module.bad(".weight_format", "is not 0, rows in order");
  }
  return finish(module, std::move(matrix));
}

/// Sizes of blocks from the JSON beside a weight of 4 bits.
struct TableState {
  std::int64_t block = 0;
  std::int64_t scale_block = 0;
  double scale_offset = 0.0;
};

TableState read_table_state(ModuleReader& module, const char* ending) {
  constexpr std::int64_t kMaxBlockWidth = 1 << 20;
  const auto stored = module.find(ending);
  const std::string_view text(reinterpret_cast<const char*>(stored->data.data()), stored->data.size());
  const auto json = parse_json(text, ending, ErrorCode::bad_file);
  if (stored->dtype != "U8" || !json || !json->is_object()) {
    module.bad(ending, "is not a JSON object in bytes");
    return {};
  }
  ConfigReader reader(*json, "JSON");
  const bool is_nested = reader.has("nested_blocksize");
  TableState state;
  state.block = reader.integer("blocksize", 1, kMaxBlockWidth);
  state.scale_block = reader.integer("nested_blocksize", 1, kMaxBlockWidth, 256);
  if (is_nested) state.scale_offset = reader.number("nested_offset", -1e30);
  const auto shape = nlohmann::json::array({module.rows, module.columns});
  if (const auto* value = reader.find("shape"); value != nullptr && *value != shape) {
    const bool is_shape = value->is_array() && value->size() <= 8 &&
                          std::ranges::all_of(*value, [](const auto& size) { return size.is_number(); });
    reader.reject("shape", (is_shape ? value->dump() : shown_value(*value)) +
                               " does not fit the config, which asks for " + shape.dump());
  }
  if (!reader.status()) module.bad(ending, reader.status().error().message);
  return state;
}

template <std::size_t N>
std::array<float, N> read_values(ModuleReader& module, const char* ending) {
  std::array<float, N> values{};
  const auto stored = module.tensor(ending, {"F32"}, {{static_cast<std::int64_t>(N)}});
  if (module.status) std::memcpy(values.data(), stored.data.data(), sizeof values);
  return values;
}

Result<Rows> open_table(ModuleReader& module, const QuantizationConfig&) {
  constexpr const char* kNf4 = ".weight.quant_state.bitsandbytes__nf4";
  constexpr const char* kFp4 = ".weight.quant_state.bitsandbytes__fp4";
  const char* state_name = module.has(kNf4) || !module.has(kFp4) ? kNf4 : kFp4;
  if (!module.has(state_name)) module.bad(state_name, "is missing");
  const std::int64_t elements = module.rows * module.columns;
  const auto stored = module.tensor(".weight", {"U8"}, {{ceil_div(elements, 2), 1}});
  TableMatrix matrix{.rows = module.rows, .columns = module.columns, .data = stored.data.data()};
  matrix.values = read_values<16>(module, ".weight.quant_map");
  if (!module.status) return fail(module.status.error());
  const TableState state = read_table_state(module, state_name);
  if (!module.status) return fail(module.status.error());
  matrix.block = state.block;
  const std::int64_t blocks = ceil_div(elements, state.block);
  if (module.has(".weight.nested_absmax")) {
    const auto indices = module.tensor(".weight.absmax", {"U8"}, {{blocks}});
    matrix.scale_indices = indices.data.data();
    matrix.scale_values = read_values<256>(module, ".weight.nested_quant_map");
    const auto scales = module.tensor(".weight.nested_absmax", {"F32"}, {{ceil_div(blocks, state.scale_block)}});
    matrix.scales = {.data = scales.data.data(), .column_step = 1};
    matrix.scale_block = state.scale_block;
    matrix.scale_offset = static_cast<float>(state.scale_offset);
  } else {
    const auto scales = module.tensor(".weight.absmax", {"F32"}, {{blocks}});
    matrix.scales = {.data = scales.data.data(), .column_step = 1};
  }
  if (!module.status) return fail(module.status.error());
  return std::make_shared<TableRows>(matrix);
}

struct Layout {
  Result<Rows> (*open)(ModuleReader& module, const QuantizationConfig& config);
  const char* packed;  ///< name of the tensor that replaces the weight, or null
};

Layout layout_of(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::awq:
      return {open_awq, ".qweight"};
    case QuantizationMethod::gptq:
      return {open_gptq, ".qweight"};
    case QuantizationMethod::compressed_tensors:
      return {open_compressed, ".weight_packed"};
    case QuantizationMethod::fp8:
      return {open_fp8, nullptr};
    case QuantizationMethod::int8_rows:
      return {open_int8_rows, nullptr};
    case QuantizationMethod::four_bit_table:
      break;
  }
  return {open_table, nullptr};
}

}  // namespace

bool is_quantized(const Checkpoint& checkpoint, QuantizationMethod method, std::string_view module) {
  const std::string name(module);
  if (const char* packed = layout_of(method).packed; packed != nullptr && checkpoint.contains(name + packed))
    return true;
  const auto weight = checkpoint.stored(name + ".weight");
  if (!weight) return false;
  switch (method) {
    case QuantizationMethod::awq:
    case QuantizationMethod::gptq:
      return false;
    case QuantizationMethod::compressed_tensors:
      return weight->dtype == "F8_E4M3" || weight->dtype == "I8";
    case QuantizationMethod::fp8:
      return weight->dtype == "F8_E4M3";
    case QuantizationMethod::int8_rows:
      return weight->dtype == "I8";
    case QuantizationMethod::four_bit_table:
      return weight->dtype == "U8";
  }
  return false;
}

Result<Rows> open_quantized_module(const Checkpoint& checkpoint, const QuantizationConfig& config,
                                   const std::string& module, std::int64_t rows, std::int64_t columns) {
  ModuleReader reader(checkpoint, module, rows, columns);
  return layout_of(config.method).open(reader, config);
}

}  // namespace pagoda::io
