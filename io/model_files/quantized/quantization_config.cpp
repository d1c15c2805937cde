#include "io/model_files/quantized/quantization_config.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kMaxGroupSize = 1LL << 22;
constexpr std::int64_t kMaxBlock = 1LL << 16;

/// Earlier versions of compressed-tensors wrote the second key.
constexpr std::array kKeys{"quantization_config", "compression_config"};

template <std::size_t N>
bool is_one_of(std::string_view value, const std::array<std::string_view, N>& known) {
  return std::ranges::find(known, value) != known.end();
}

template <std::size_t N>
std::string list_of(const std::array<std::string_view, N>& known) {
  std::string list;
  for (const auto name : known) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

/// Returns the string of `key` in lower case, which must be one of `known`. Without a `default_value` (null) the key
/// must exist.
template <std::size_t N>
std::string read_name(ConfigReader& reader, const char* key, const char* default_value,
                      const std::array<std::string_view, N>& known) {
  std::string name = default_value == nullptr ? reader.string(key) : reader.string(key, default_value);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (!is_one_of(name, known)) {
    reader.reject(key, quote(name) + " is not supported (" + list_of(known) + ")", ErrorCode::unsupported);
  }
  return name;
}

/// Returns the first of two keys that exists: formats have renamed their keys.
const char* either(const ConfigReader& reader, const char* key, const char* other) {
  return reader.has(key) || !reader.has(other) ? key : other;
}

void read_groups(ConfigReader& reader, QuantizationConfig& config) {
  const char* key = either(reader, "group_size", "q_group_size");
  config.group_size = reader.integer(key, -1, kMaxGroupSize, 128);
  if (config.group_size == 0) reader.reject(key, "must be -1 or a number of columns, not 0");
  config.group_size = std::max<std::int64_t>(config.group_size, 0);
}

void read_bits(ConfigReader& reader, QuantizationConfig& config, std::initializer_list<std::int64_t> known) {
  const char* key = either(reader, "bits", "w_bit");
  const std::int64_t bits = reader.integer(key, 1, 64, 4);
  config.bits = static_cast<int>(bits);
  if (std::ranges::find(known, bits) != known.end()) return;
  std::string list;
  for (const auto choice : known) list += (list.empty() ? "" : ", ") + std::to_string(choice);
  reader.reject(key, std::to_string(bits) + " bits are not supported (" + list + ")", ErrorCode::unsupported);
}

void read_awq(ConfigReader& reader, QuantizationConfig& config) {
  config.method = QuantizationMethod::awq;
  read_bits(reader, config, {4});
  read_groups(reader, config);
  constexpr std::array<std::string_view, 1> kVersions{"gemm"};
  read_name(reader, either(reader, "version", "format"), "gemm", kVersions);
  if (!reader.boolean("zero_point", true)) {
    reader.reject("zero_point", "false is not supported (AWQ's tensors have zero points)", ErrorCode::unsupported);
  }
  config.name = "AWQ int4";
}

void read_gptq(ConfigReader& reader, QuantizationConfig& config) {
  config.method = QuantizationMethod::gptq;
  read_bits(reader, config, {4, 8});
  read_groups(reader, config);
  constexpr std::array<std::string_view, 2> kFormats{"gptq", "gptq_v2"};
  const auto format = read_name(reader, either(reader, "checkpoint_format", "format"), "gptq", kFormats);
  config.zeros_lack_one = format == "gptq";
  if (reader.boolean("is_marlin_format", false)) {
    reader.reject("is_marlin_format", "true is not supported", ErrorCode::unsupported);
  }
  if (const auto* dynamic = reader.find("dynamic"); dynamic != nullptr && !dynamic->empty()) {
    reader.reject("dynamic", "other bits for some modules are not supported", ErrorCode::unsupported);
  }
  constexpr std::array<std::string_view, 1> kPackTypes{"int32"};
  read_name(reader, "pack_dtype", "int32", kPackTypes);
  config.name = "GPTQ int" + std::to_string(config.bits);
}

/// Reads the block [rows, columns] that shares a scale; without the key `config` stays as it is.
void read_block(ConfigReader& reader, const char* key, QuantizationConfig& config) {
  const auto* value = reader.find(key);
  if (value == nullptr) return;
  const auto fits = [](const nlohmann::json& entry) {
    return entry.is_number_unsigned() && entry.get<std::uint64_t>() > 0 && entry.get<std::uint64_t>() <= kMaxBlock;
  };
  if (!value->is_array() || value->size() != 2 || !std::ranges::all_of(*value, fits)) {
    reader.reject(key, "must be [rows, columns] of a block, each 1 to " + std::to_string(kMaxBlock));
    return;
  }
  const auto rows = value->at(0).get<std::int64_t>();
  const auto columns = value->at(1).get<std::int64_t>();
  const bool is_other = config.block_rows != 0 && (config.block_rows != rows || config.block_columns != columns);
  if (is_other)
    reader.reject(key, "blocks of several sizes in one checkpoint are not supported", ErrorCode::unsupported);
  config.block_rows = rows;
  config.block_columns = columns;
}

constexpr std::string_view kMxfp4 = "mxfp4-pack-quantized";
constexpr std::array<std::string_view, 5> kCompressedFormats{"pack-quantized", "int-quantized", "float-quantized",
                                                             "naive-quantized", kMxfp4};

void read_compressed_weights(ConfigReader& reader, const std::string& format, QuantizationConfig& config) {
  constexpr std::array<std::string_view, 2> kTypes{"int", "float"};
  const auto type = read_name(reader, "type", "int", kTypes);
  const auto bits = reader.integer("num_bits", 1, 64, 8);
  const bool narrow = format == "pack-quantized" || (format == "naive-quantized" && type == "int");
  const char* known = format == kMxfp4 ? " (4)" : narrow ? " (4, 8)" : " (8)";
  if ((bits != 8 || format == kMxfp4) && (bits != 4 || (!narrow && format != kMxfp4))) {
    reader.reject("num_bits", std::to_string(bits) + " bits are not supported in format " + format + known,
                  ErrorCode::unsupported);
  }
  config.bits = static_cast<int>(bits);
  const bool wrong_type = (type == "float" && (format == "pack-quantized" || format == "int-quantized")) ||
                          (type == "int" && (format == "float-quantized" || format == kMxfp4));
  if (wrong_type) reader.reject("type", quote(type) + " does not belong to format " + format);
  constexpr std::array<std::string_view, 4> kStrategies{"tensor", "channel", "group", "block"};
  const auto strategy = read_name(reader, "strategy", "tensor", kStrategies);
  if (strategy == "block") {
    if (!reader.has("block_structure")) reader.reject("block_structure", "is missing");
    read_block(reader, "block_structure", config);
  }
}

/// Returns whether `fits` is true for any target of any group.
bool any_target(const nlohmann::json& groups, const std::function<bool(const nlohmann::json&)>& fits) {
  return std::ranges::any_of(groups, [&](const nlohmann::json& group) {
    const auto targets = group.find("targets");
    return targets != group.end() && std::ranges::any_of(*targets, fits);
  });
}

/// Returns whether a group has the target `type`.
bool has_target(const nlohmann::json& groups, std::string_view type) {
  return any_target(groups, [&](const nlohmann::json& target) { return target == type; });
}

/// Returns whether groups list modules by name, not by type or pattern. pagoda quantize does so where bits differ.
bool names_modules(const nlohmann::json& groups) {
  return any_target(groups, [](const nlohmann::json& target) {
    if (!target.is_string()) return false;
    const auto& text = target.get_ref<const std::string&>();
    return !text.starts_with("re:") && text.find('.') != text.npos;
  });
}

void read_compressed_groups(ConfigReader& groups, const nlohmann::json& object, const std::string& format,
                            QuantizationConfig& config) {
  for (const auto& [name, value] : object.items()) {
    groups.nested(name.c_str(), [&](ConfigReader& group) {
      const auto own_format = group.has("format") || format == "mixed-precision"
                                  ? read_name(group, "format", nullptr, kCompressedFormats)
                                  : format;
      if (!group.has("weights")) return;
      group.nested("weights", [&](ConfigReader& weights) { read_compressed_weights(weights, own_format, config); });
    });
  }
}

/// Returns whether `apply`, one entry of a transform's list, is for `location`.
bool is_at(const nlohmann::json& apply, std::string_view location, bool inverse) {
  return apply.is_object() && apply.value("location", nlohmann::json()) == location &&
         apply.value("inverse", nlohmann::json(false)) == inverse;
}

/// Reads the rotation, which must be that of the kernels: blocks of columns, of x and of weights. Its matrix is checked
/// when the tensors are read.
void read_rotation(ConfigReader& reader, QuantizationConfig& config) {
  const auto* transforms = reader.find("transform_config");
  if (transforms == nullptr || transforms->empty()) return;
  const bool has_groups = transforms->is_object() && transforms->contains("config_groups");
  const auto* groups = has_groups ? &transforms->at("config_groups") : nullptr;
  if (groups != nullptr && groups->is_object() && groups->empty()) return;
  if (groups != nullptr && groups->is_object() && groups->size() == 1 && groups->begin()->is_object()) {
    const nlohmann::json& scheme = *groups->begin();
    const auto of = [&](const char* key, const nlohmann::json& otherwise) { return scheme.value(key, otherwise); };
    const nlohmann::json apply = of("apply", nlohmann::json::array());
    const bool is_known = of("type", nullptr) == "random-hadamard" &&
                          of("head_dim", nullptr) == kernels::kRotationBlock && of("randomize", false) == false &&
                          apply.is_array() && apply.size() == 2 && is_at(apply[0], "input", false) &&
                          is_at(apply[1], "weight_input", true);
    if (is_known) {
      config.rotation = groups->begin().key();
      return;
    }
  }
  reader.reject("transform_config",
                "is not supported: only what pagoda quantize writes, a random-hadamard of blocks of " +
                    std::to_string(kernels::kRotationBlock) + " columns of x and of weights",
                ErrorCode::unsupported);
}

void read_compressed_tensors(ConfigReader& reader, QuantizationConfig& config) {
  config.method = QuantizationMethod::compressed_tensors;
  constexpr std::array<std::string_view, 6> kFormats{"pack-quantized",  "int-quantized", "float-quantized",
                                                     "naive-quantized", kMxfp4,          "mixed-precision"};
  const auto format = read_name(reader, "format", nullptr, kFormats);
  // Older tools write "frozen" for the same files. Weights that are not stored in the format leave scales unused.
  constexpr std::array<std::string_view, 2> kStatus{"compressed", "frozen"};
  read_name(reader, "quantization_status", "compressed", kStatus);
  if (const auto* sparsity = reader.find("sparsity_config"); sparsity != nullptr && !sparsity->empty()) {
    constexpr std::array<std::string_view, 1> kSparsity{"dense"};
    reader.nested("sparsity_config", [&](ConfigReader& sparse) { read_name(sparse, "format", "dense", kSparsity); });
  }
  read_rotation(reader, config);
  const auto* groups = reader.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    reader.reject("config_groups", "must be an object with a group at least");
    return;
  }
  reader.nested("config_groups",
                [&](ConfigReader& nested) { read_compressed_groups(nested, *groups, format, config); });
  config.packs_linear = (has_target(*groups, "Linear") || names_modules(*groups)) && !has_target(*groups, "Conv1D");
  config.name = "compressed-tensors " + format;
}

void read_fp8(ConfigReader& reader, QuantizationConfig& config) {
  config.method = QuantizationMethod::fp8;
  constexpr std::array<std::string_view, 2> kTypes{"e4m3", "float8_e4m3fn"};
  read_name(reader, "fmt", "e4m3", kTypes);
  read_block(reader, "weight_block_size", config);
  config.name = "FP8";
}

void read_fbgemm_fp8(ConfigReader&, QuantizationConfig& config) {
  config.method = QuantizationMethod::fp8;
  config.name = "fbgemm FP8";
}

void read_bitsandbytes(ConfigReader& reader, QuantizationConfig& config) {
  const bool four = reader.boolean(either(reader, "load_in_4bit", "_load_in_4bit"), false);
  const bool eight = reader.boolean(either(reader, "load_in_8bit", "_load_in_8bit"), false);
  if (four == eight) reader.reject("load_in_4bit", "either load_in_4bit or load_in_8bit must be true");
  config.method = four ? QuantizationMethod::four_bit_table : QuantizationMethod::int8_rows;
  config.name = "bitsandbytes int8";
  if (!four) return;
  constexpr std::array<std::string_view, 2> kTypes{"nf4", "fp4"};
  config.name = "bitsandbytes " + read_name(reader, "bnb_4bit_quant_type", "fp4", kTypes);
  constexpr std::array<std::string_view, 1> kStorage{"uint8"};
  read_name(reader, "bnb_4bit_quant_storage", "uint8", kStorage);
}

struct Method {
  std::string_view name;
  void (*read)(ConfigReader& reader, QuantizationConfig& config);
};
constexpr std::array<Method, 6> kMethods{{{"awq", read_awq},
                                          {"gptq", read_gptq},
                                          {"compressed-tensors", read_compressed_tensors},
                                          {"fp8", read_fp8},
                                          {"fbgemm_fp8", read_fbgemm_fp8},
                                          {"bitsandbytes", read_bitsandbytes}}};

/// `absent`: name of the method where the file names none.
const Method* read_method(ConfigReader& reader, std::optional<std::string> absent) {
  const auto name = reader.string("quant_method", std::move(absent));
  if (!reader.status()) return nullptr;
  const auto* method = std::ranges::find(kMethods, name, &Method::name);
  if (method != kMethods.end()) return method;
  std::string list;
  for (const auto& known : kMethods) list.append(list.empty() ? "" : ", ").append(known.name);
  reader.reject("quant_method", quote(name) + " is not supported (" + list + ")", ErrorCode::unsupported);
  return nullptr;
}

/// Returns bfloat16 where the config names no type.
DType read_dequantized_dtype(ConfigReader& reader) {
  auto name = reader.string(either(reader, "dtype", "torch_dtype"), std::string(to_string(DType::bf16)));
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const auto dtype : {DType::f32, DType::f16}) {
    if (name == to_string(dtype)) return dtype;
  }
  return DType::bf16;
}

}  // namespace

bool has_quantization(const ConfigReader& config) {
  return std::ranges::any_of(kKeys, [&](const char* key) { return config.has(key); });
}

void erase_quantization(nlohmann::json& config) {
  for (const char* key : kKeys) config.erase(key);
}

std::optional<QuantizationConfig> read_quantization_config(ConfigReader& config) {
  if (!has_quantization(config)) return std::nullopt;
  QuantizationConfig quantization;
  config.nested(either(config, kKeys[0], kKeys[1]), [&](ConfigReader& reader) {
    // The first versions of bitsandbytes in transformers wrote no method.
    const bool is_nameless = reader.has("load_in_8bit") || reader.has("load_in_4bit");
    const auto* method = read_method(reader, is_nameless ? std::optional<std::string>("bitsandbytes") : std::nullopt);
    if (method != nullptr) method->read(reader, quantization);
  });
  quantization.dtype = read_dequantized_dtype(config);
  if (!config.status()) return std::nullopt;
  return quantization;
}

QuantizationConfig read_quantization_file(ConfigReader& file, ConfigReader& config) {
  QuantizationConfig quantization;
  if (const auto* method = read_method(file, file.has("w_bit") ? "awq" : "gptq")) method->read(file, quantization);
  quantization.dtype = read_dequantized_dtype(config);
  return quantization;
}

}  // namespace pagoda::io
