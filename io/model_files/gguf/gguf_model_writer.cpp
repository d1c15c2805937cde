#include "io/model_files/gguf/gguf_model_writer.hpp"

#include <algorithm>
#include <set>
#include <system_error>

#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"

namespace pagoda::io {
namespace {

/// A written type, and general.file_type of a file whose weights are mostly of this type.
struct WrittenType {
  GgmlType type;
  std::uint32_t file_type;
};

WrittenType written_type(int bits, const GgufModelWriter::Format& format) {
  if (bits == 8) return {ggml::kQ8_0, 7};
  return format.minimums ? WrittenType{ggml::kQ4_1, 3} : WrittenType{ggml::kQ4_0, 2};
}

std::vector<GgufRowRange> tensors_of(const WrittenModule& module, const GgufArchitecture& architecture,
                                     const GgufHeads& heads) {
  return gguf_tensors_of(architecture, module.name + ".weight", module.rows, heads);
}

std::vector<Float16> halves_of(std::span<const float> numbers) {
  std::vector<Float16> halves(numbers.size());
  std::ranges::transform(numbers, halves.begin(), to_f16);
  return halves;
}

}  // namespace

Status GgufModelWriter::check_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto refuse = [&](const char* reason) {
    return fail(ErrorCode::bad_config, path.string() + " " + reason, "out");
  };
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) return refuse("already exists");
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, error)) return refuse("cannot be written: its folder does not exist");
  return {};
}

Result<GgufModelWriter> GgufModelWriter::create(const std::filesystem::path& path, GgufModelParts parts,
                                                const std::vector<WrittenModule>& modules, const Format& format) {
  constexpr std::uint32_t kQuantizationVersion = 2;  // version of the blocks' layouts
  if (Status status = check_file(path); !status) return fail(std::move(status.error()));
  parts.metadata.set("general.file_type", written_type(most_common_bits(modules), format).file_type);
  parts.metadata.set("general.quantization_version", kQuantizationVersion);
  std::set<std::string, std::less<>> quantized;
  for (const WrittenModule& module : modules) {
    const auto ranges = tensors_of(module, *parts.architecture, parts.heads);
    for (const GgufRowRange& range : ranges) {
      const auto tensor =
          std::ranges::find_if(parts.tensors, [&](const auto& t) { return t.described.name == range.name; });
      if (tensor == parts.tensors.end()) continue;
      tensor->described.type = written_type(module.bits, format).type;
      quantized.insert(range.name);
    }
    const auto is_there = [&](const GgufRowRange& range) { return quantized.contains(range.name); };
    if (ranges.empty() || !std::ranges::all_of(ranges, is_there)) {
      return fail(ErrorCode::unsupported, "GGUF has no tensor for " + quote(module.name), "model");
    }
  }
  std::vector<GgufTensorHeader> tensors;
  for (const auto& tensor : parts.tensors) tensors.push_back(tensor.described);
  auto file = create_gguf_file(path, parts.metadata, tensors, parts.alignment);
  if (!file) return fail(std::move(file.error()));
  std::vector<std::byte> memory;
  for (const auto& [described, data] : parts.tensors) {
    if (quantized.contains(described.name)) continue;
    if (Status status = file->write(described.name, data(memory)); !status) return fail(std::move(status.error()));
  }
  return GgufModelWriter(path, parts, format, std::move(*file));
}

Status GgufModelWriter::write(const WrittenModule& module, const WrittenWeights& weights) {
  const GgmlType type = written_type(module.bits, format_).type;
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const std::int64_t groups = module.columns / info.block_elements;
  const std::vector<Float16> scales = halves_of(weights.scales);
  const std::vector<Float16> mins = halves_of(weights.mins);
  const std::int64_t row_bytes = groups * info.block_bytes;
  for (const auto& [name, first_row, num_rows] : tensors_of(module, architecture_, heads_)) {
    const std::int64_t num_heads = interleaved_heads(architecture_, name, heads_);
    std::vector<std::byte> blocks(static_cast<std::size_t>(num_rows * row_bytes));
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const std::int64_t row = first_row + i;
      const std::int64_t to = num_heads == 0 ? i : interleaved_row(i, num_rows / num_heads);
      pack_row(type, weights.q.data() + row * module.columns, scales.data() + row * groups, mins.data() + row * groups,
               module.columns, blocks.data() + to * row_bytes);
    }
    if (Status status = file_.write(name, blocks); !status) return status;
  }
  return {};
}

Status GgufModelWriter::finish() {
  return file_.finish();
}

std::int64_t GgufModelWriter::written_bytes() const {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path_, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

}  // namespace pagoda::io
