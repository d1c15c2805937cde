#include "io/model_files/quantized/compressed_tensors_writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "kernels/rotation.hpp"

namespace pagoda::io {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kWeightsFile = "model.safetensors";
constexpr std::string_view kConfigFile = "config.json";
constexpr std::string_view kRotation = "R";

Status fail_at(const fs::path& path, const char* what, const std::error_code& error) {
  return fail(ErrorCode::io_failed, std::string("cannot ") + what + " " + path.string() + ": " + error.message(),
              "out");
}

/// Makes the folder if it does not exist. The deleter of the result removes a folder that was made, if it is empty.
Result<std::shared_ptr<const void>> make_folder(const fs::path& folder) {
  std::error_code error;
  const bool is_made = fs::create_directories(folder, error);
  if (error) return fail(fail_at(folder, "make", error).error());
  if (!is_made) return nullptr;
  return std::shared_ptr<const void>(nullptr, [folder](const void*) {
    std::error_code ignored;
    fs::remove(folder, ignored);
  });
}

ordered_json rotation_config(const std::vector<std::string>& plain_modules) {
  const auto apply = [&](const char* location, bool inverse) {
    return ordered_json{
        {"targets", {"Linear"}}, {"location", location}, {"inverse", inverse}, {"ignore", plain_modules}};
  };
  return {{"config_groups",
           {{std::string(kRotation),
             {{"type", "random-hadamard"},
              {"apply", {apply("input", false), apply("weight_input", true)}},
              {"randomize", false},
              {"requires_grad", false},
              {"head_dim", kernels::kRotationBlock},
              {"precision", "torch.float32"}}}}}};
}

ordered_json group_config(int bits, const CompressedTensorsWriter::Format& format,
                          const std::vector<std::string>& targets) {
  return {{"targets", targets},
          {"weights",
           {{"num_bits", bits},
            {"type", "int"},
            {"symmetric", !format.asymmetric},
            {"strategy", "group"},
            {"group_size", format.group_size},
            {"actorder", nullptr},
            {"block_structure", nullptr},
            {"dynamic", false},
            {"observer", "minmax"},
            {"observer_kwargs", ordered_json::object()}}},
          {"input_activations", nullptr},
          {"output_activations", nullptr}};
}

/// Returns a config group for each number of bits. Where there are two groups, each lists its modules by name: some
/// versions of vLLM match the class of a layer that joins several modules before they look for the modules' names.
ordered_json config_groups(const std::vector<WrittenModule>& modules, const CompressedTensorsWriter::Format& format) {
  std::map<int, std::vector<std::string>> named;
  for (const WrittenModule& module : modules) named[module.bits].push_back(module.name);
  ordered_json groups;
  for (const auto& [bits, names] : named) {
    groups["group_" + std::to_string(groups.size())] =
        group_config(bits, format, named.size() == 1 ? std::vector<std::string>{"Linear"} : names);
  }
  return groups;
}

/// Returns the text of the model's config.json with a quantization_config. Linear layers that are not quantised are
/// listed by name.
Result<std::string> quantized_config(ordered_json config, const std::vector<WrittenModule>& modules,
                                     const CompressedTensorsWriter::Format& format,
                                     const std::vector<std::string>& plain_modules) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (config.contains(key) && !config[key].is_null()) {
      return fail(ErrorCode::unsupported, std::string("config.json: the model is quantised already (") + key + ")",
                  "model");
    }
  }
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"quantization_status", "compressed"},
                                   {"config_groups", config_groups(modules, format)},
                                   {"ignore", plain_modules},
                                   {"kv_cache_scheme", nullptr},
                                   {"global_compression_ratio", nullptr}};
  if (format.rotated) config["quantization_config"]["transform_config"] = rotation_config(plain_modules);
  return config.dump(2) + "\n";
}

/// Returns kernels::rotate_block, without its factor, as a matrix [block, block] that rows of x are multiplied with.
std::vector<float> rotation_matrix() {
  constexpr std::size_t kBlock = kernels::kRotationBlock;
  std::vector<float> matrix(kBlock * kBlock);
  for (std::size_t i = 0; i < kBlock; ++i) {
    matrix[i * kBlock + i] = 1;
    kernels::rotate_block(matrix.data() + i * kBlock, 1);
  }
  return matrix;
}

std::span<const std::byte> bytes_of(const auto& elements) {
  return std::as_bytes(std::span(elements));
}

std::string rotation_name(const WrittenModule& module) {
  return module.name + "." + std::string(kRotation) + "_input.weight";
}

/// Packs neighbouring columns into words, from the low bits upwards; the last word of a row is padded with zeros.
std::vector<std::uint32_t> packed(std::span<const std::uint8_t> q, std::int64_t rows, std::int64_t columns, int bits) {
  const std::int64_t per_word = 32 / bits;
  const std::int64_t words = (columns + per_word - 1) / per_word;
  std::vector<std::uint32_t> all(static_cast<std::size_t>(rows * words));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* const from = q.data() + row * columns;
    std::uint32_t* const to = all.data() + row * words;
    for (std::int64_t k = 0; k < columns; ++k) to[k / per_word] |= std::uint32_t{from[k]} << (k % per_word * bits);
  }
  return all;
}

template <class T>
std::vector<T> transposed(std::span<const T> matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<T> result(matrix.size());
  for (std::int64_t i = 0; i < std::ssize(matrix); ++i) {
    result[static_cast<std::size_t>(i % columns * rows + i / columns)] = matrix[static_cast<std::size_t>(i)];
  }
  return result;
}

/// Returns the joined module that has the model's module `name` as a part; null where the folder has `name` itself.
const FolderParts::Joined* joined_of(const FolderParts& parts, std::string_view name) {
  const auto found = std::ranges::find_if(parts.joined, [&](const FolderParts::Joined& joined) {
    return std::ranges::find(joined.modules, name) != joined.modules.end();
  });
  return found == parts.joined.end() ? nullptr : &*found;
}

/// Returns the modules of the folder that the model's `modules` form.
std::vector<WrittenModule> modules_of_folder(const FolderParts& parts, const std::vector<WrittenModule>& modules) {
  std::vector<WrittenModule> all;
  for (const WrittenModule& module : modules) {
    const auto* joined = joined_of(parts, module.name);
    if (joined == nullptr) {
      all.push_back(module);
    } else if (module.name == joined->modules.front()) {
      all.push_back({joined->name, module.rows, module.columns, module.bits});
    } else {
      PAGODA_ASSERT(!all.empty() && all.back().name == joined->name && all.back().columns == module.columns &&
                        all.back().bits == module.bits,
                    "parts come in order");
      all.back().rows += module.rows;
    }
  }
  return all;
}

}  // namespace

Status CompressedTensorsWriter::check_folder(const fs::path& folder) {
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) return {};
  if (error) return fail_at(folder, "read", error);
  if (!fs::is_directory(status)) return fail(ErrorCode::bad_config, folder.string() + " is not a folder", "out");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto is_begun = [&](std::string_view file) { return name == std::string(file).append(PartFile::kEnding); };
    if (is_begun(kWeightsFile) || is_begun(kConfigFile)) continue;
    return fail(ErrorCode::bad_config, folder.string() + " is not empty", "out");
  }
  return error ? fail_at(folder, "read", error) : Status();
}

Result<CompressedTensorsWriter> CompressedTensorsWriter::create(FolderParts parts, const fs::path& folder,
                                                                const std::vector<WrittenModule>& modules,
                                                                const Format& format) {
  std::set<std::string, std::less<>> replaced;
  std::vector<SafetensorsTensor> tensors;
  const std::vector<WrittenModule> of_folder = modules_of_folder(parts, modules);
  for (const WrittenModule& module : of_folder) {
    replaced.insert(module.name + ".weight");
    const std::int64_t words = module.columns * module.bits / 32;
    const std::int64_t groups = module.columns / format.group_size;
    PAGODA_ASSERT(module.columns * module.bits % 32 == 0 && module.columns % format.group_size == 0, "whole words");
    tensors.push_back({module.name + ".weight_packed",
                       "I32",
                       {module.rows, words},
                       static_cast<std::size_t>(module.rows * words * 4)});
    tensors.push_back({module.name + ".weight_scale",
                       format.scale_dtype == DType::bf16 ? "BF16" : "F16",
                       {module.rows, groups},
                       static_cast<std::size_t>(module.rows * groups * 2)});
    tensors.push_back({module.name + ".weight_shape", "I64", {2}, 16});
    if (format.asymmetric) {
      const std::int64_t zero_words = (module.rows * module.bits + 31) / 32;
      tensors.push_back({module.name + ".weight_zero_point",
                         "I32",
                         {zero_words, groups},
                         static_cast<std::size_t>(zero_words * groups * 4)});
    }
    if (format.rotated) {
      constexpr std::int64_t kBlock = kernels::kRotationBlock;
      tensors.push_back({rotation_name(module), "F32", {kBlock, kBlock}, kBlock * kBlock * sizeof(float)});
    }
  }
  std::vector<std::string> plain_modules{"lm_head"};
  std::erase_if(parts.tensors, [&](const FolderParts::Tensor& tensor) { return replaced.contains(tensor.name); });
  for (const FolderParts::Tensor& tensor : parts.tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    const std::string& name = tensor.name;
    if (tensor.shape.size() == 2 && name.ends_with(".weight") && name != "lm_head.weight") {
      plain_modules.push_back(name.substr(0, name.size() - std::string_view(".weight").size()));
    }
  }
  auto config = quantized_config(std::move(parts.config), of_folder, format, plain_modules);
  if (!config) return fail(std::move(config.error()));
  if (Status status = check_folder(folder); !status) return fail(std::move(status.error()));
  auto made_folder = make_folder(folder);
  if (!made_folder) return fail(std::move(made_folder.error()));
  auto weights = create_safetensors_file(folder / kWeightsFile, std::move(tensors));
  if (!weights) return fail(std::move(weights.error()));
  std::vector<std::byte> memory;
  for (const FolderParts::Tensor& tensor : parts.tensors) {
    Status status = weights->write(tensor.name, tensor.data(memory));
    if (!status) return fail(std::move(status.error()));
  }
  parts.tensors.clear();
  return CompressedTensorsWriter(std::move(parts), folder, format, std::move(*config), std::move(*made_folder),
                                 std::move(*weights));
}

Status CompressedTensorsWriter::write(const WrittenModule& module, const WrittenWeights& weights) {
  const auto* joined = joined_of(parts_, module.name);
  return joined == nullptr ? write_whole(module, weights) : write_part(*joined, module, weights);
}

/// A word of zero points may hold rows of several parts, so the parts are written together after the last one.
Status CompressedTensorsWriter::write_part(const FolderParts::Joined& joined, const WrittenModule& module,
                                           const WrittenWeights& weights) {
  PAGODA_ASSERT(joined.modules[begun_.num_parts] == module.name, "parts come in order");
  ++begun_.num_parts;
  begun_.rows += module.rows;
  begun_.q.insert(begun_.q.end(), weights.q.begin(), weights.q.end());
  begun_.scales.insert(begun_.scales.end(), weights.scales.begin(), weights.scales.end());
  begun_.zeros.insert(begun_.zeros.end(), weights.zeros.begin(), weights.zeros.end());
  if (begun_.num_parts < joined.modules.size()) return {};
  const Begun whole = std::exchange(begun_, {});
  return write_whole({joined.name, whole.rows, module.columns, module.bits},
                     {.q = whole.q, .scales = whole.scales, .zeros = whole.zeros, .mins = {}});
}

Status CompressedTensorsWriter::write_whole(const WrittenModule& module, const WrittenWeights& weights) {
  const std::int64_t groups = module.columns / format_.group_size;
  const std::array<std::int64_t, 2> shape{module.rows, module.columns};
  const auto name = [&](const char* ending) { return module.name + ending; };
  Status status =
      weights_.write(name(".weight_packed"), bytes_of(packed(weights.q, module.rows, module.columns, module.bits)));
  if (status) {
    const bool wide = format_.scale_dtype == DType::bf16;
    std::vector<std::uint16_t> halves(weights.scales.size());
    std::ranges::transform(weights.scales, halves.begin(),
                           [=](float x) { return wide ? to_bf16(x).bits : to_f16(x).bits; });
    status = weights_.write(name(".weight_scale"), bytes_of(halves));
  }
  if (status) status = weights_.write(name(".weight_shape"), bytes_of(shape));
  if (status && format_.asymmetric) {
    // Zero points are packed along rows: as columns of the transposed matrix, which is transposed back.
    const auto words = packed(transposed(weights.zeros, module.rows, groups), groups, module.rows, module.bits);
    status =
        weights_.write(name(".weight_zero_point"),
                       bytes_of(transposed(std::span<const std::uint32_t>(words), groups, std::ssize(words) / groups)));
  }
  if (status && format_.rotated) status = weights_.write(rotation_name(module), bytes_of(rotation_matrix()));
  return status;
}

Status CompressedTensorsWriter::finish() {
  Status status = weights_.finish();
  if (status) status = write_other_files(parts_, folder_);
  return status ? write_config() : status;
}

Status CompressedTensorsWriter::write_config() const {
  auto file = PartFile::create(folder_ / kConfigFile);
  if (!file) return fail(std::move(file.error()));
  Status status = file->write_at(0, std::as_bytes(std::span(config_)));
  return status ? file->finish() : status;
}

std::int64_t CompressedTensorsWriter::written_bytes() const {
  std::error_code error;
  const auto bytes = fs::file_size(folder_ / kWeightsFile, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

}  // namespace pagoda::io
