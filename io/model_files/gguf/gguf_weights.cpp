#include "io/model_files/gguf/gguf_weights.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"

namespace pagoda::io {
namespace {

/// Rows of a quantised matrix, or of a plain matrix whose rows are not in Hugging Face's order.
class GgufRows final : public weights::QuantizedRows {
 public:
  /// `head_dim`: size of interleaved heads, or 0. `fits`: whether kernels can hold the scales. Keeps a reference to
  /// `tensor`.
  GgufRows(const GgufTensor& tensor, std::int64_t head_dim, bool fits)
      : tensor_(tensor), info_(*ggml_type_info(tensor.type)), head_dim_(head_dim), fits_(fits) {}

  std::optional<kernels::QuantizedFormat> format() const override {
    return info_.plain || !fits_ ? std::nullopt : std::optional(info_.format);
  }

  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override {
    unpack_row(tensor_.type, blocks(row), columns(), to);
  }

  void dequantize(std::int64_t row, float* to) const override {
    dequantize_row(tensor_.type, blocks(row), columns(), to);
  }

 private:
  std::int64_t columns() const { return tensor_.shape.back(); }
  const std::byte* blocks(std::int64_t row) const {
    const std::int64_t row_bytes = columns() / info_.block_elements * info_.block_bytes;
    return tensor_.data.data() + (head_dim_ > 0 ? interleaved_row(row, head_dim_) : row) * row_bytes;
  }

  const GgufTensor& tensor_;
  const GgmlTypeInfo& info_;
  std::int64_t head_dim_;
  bool fits_;
};

}  // namespace

Result<std::shared_ptr<const GgufWeights>> GgufWeights::open(std::shared_ptr<const GgufFile> file) {
  const auto architecture = find_gguf_architecture(*file);
  if (!architecture) return fail(architecture.error());
  const auto heads = read_gguf_heads(*file, **architecture);
  if (!heads) return fail(heads.error());
  return std::shared_ptr<const GgufWeights>(new GgufWeights(std::move(file), **architecture, *heads));
}

const GgufTensor* GgufWeights::find(std::string_view name) const {
  const auto gguf_name = gguf_tensor_name(architecture_, name);
  return gguf_name ? file_->tensor(*gguf_name) : nullptr;
}

std::int64_t GgufWeights::interleaved_heads(const GgufTensor& tensor) const {
  return io::interleaved_heads(architecture_, tensor.name, heads_);
}

bool GgufWeights::holds_derived(std::string_view module) const {
  return architecture_.untransposed && module.starts_with(architecture_.layer_prefix);
}

Result<weights::WeightTensor> GgufWeights::describe(std::string_view name,
                                                    const std::vector<std::int64_t>& shape) const {
  const auto* tensor = find(name);
  if (tensor == nullptr) {
    const auto gguf_name = gguf_tensor_name(architecture_, name);
    return fail(ErrorCode::bad_file, file_->path() + (file_->num_files() > 1 ? " and its other parts" : "") +
                                         ": tensor " + quote(gguf_name.value_or(std::string(name))) + " is missing");
  }
  const auto bad = [&](const std::string& reason) {
    return fail(ErrorCode::bad_file, file_->path_of(*tensor) + ": tensor " + quote(tensor->name) + ": " + reason);
  };
  if (tensor->shape != shape) {
    return bad("shape " + shape_text(tensor->shape) + " does not fit the metadata, which asks for " +
               shape_text(shape));
  }
  const std::int64_t num_heads = interleaved_heads(*tensor);
  if (num_heads != 0 && shape.front() % (2 * num_heads) != 0) {
    return bad("its " + std::to_string(shape.front()) + " rows are not " + std::to_string(num_heads) +
               " heads of an even size");
  }
  const GgmlTypeInfo& info = *ggml_type_info(tensor->type);
  weights::WeightTensor described{tensor->name, info.plain.value_or(DType::f32), tensor->shape};
  if (info.plain && (num_heads == 0 || shape.size() != 2)) return described;
  if (shape.size() != 2) return bad(std::string(info.name) + " is for matrices only");
  const ScaleRange range = info.plain ? ScaleRange::float16 : scale_range(*tensor);
  if (range == ScaleRange::none) return bad("a scale is not a number, or makes weights that float32 does not hold");
  described.quantized =
      std::make_shared<GgufRows>(*tensor, num_heads == 0 ? 0 : shape.front() / num_heads, range == ScaleRange::float16);
  return described;
}

/// The call may read the whole tensor, so its result is kept.
ScaleRange GgufWeights::scale_range(const GgufTensor& tensor) const {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = scale_ranges_.try_emplace(tensor.name);
  if (is_new) found->second = range_of_scales(tensor.type, tensor.data);
  return found->second;
}

Result<weights::WeightTensor> GgufWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto described = describe(name, shape);
  if (!described) return described;
  const GgufTensor& tensor = *find(name);
  {
    const std::lock_guard lock(mutex_);
    used_.insert(tensor.name);
  }
  if (described->quantized != nullptr) return described;
  const std::int64_t num_heads = interleaved_heads(tensor);
  described->data = num_heads == 0 ? tensor.data.data() : in_order(tensor, num_heads);
  return described;
}

const void* GgufWeights::in_order(const GgufTensor& tensor, std::int64_t num_heads) const {
  const std::lock_guard lock(mutex_);
  auto& copy = copies_[tensor.name];
  if (copy == nullptr) {
    copy = std::make_unique_for_overwrite<std::byte[]>(tensor.data.size());
    const std::int64_t num_rows = tensor.shape.front();
    const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(num_rows);
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const auto from = static_cast<std::size_t>(interleaved_row(row, num_rows / num_heads));
      std::memcpy(copy.get() + static_cast<std::size_t>(row) * row_bytes, tensor.data.data() + from * row_bytes,
                  row_bytes);
    }
  }
  return copy.get();
}

void GgufWeights::release_pages(const weights::WeightTensor& tensor) const {
  const auto* found = file_->tensor(tensor.name);
  if (found != nullptr) file_->drop_pages(*found);
}

std::string GgufWeights::file_of(const weights::WeightTensor& tensor) const {
  const auto* found = file_->tensor(tensor.name);
  return found == nullptr ? file_->path() : file_->path_of(*found);
}

CheckpointFacts GgufWeights::facts() const {
  CheckpointFacts facts;
  facts.format = "gguf";
  facts.num_files = static_cast<std::int64_t>(file_->num_files());
  facts.num_tensors = static_cast<std::int64_t>(file_->tensors().size());
  for (const auto& [name, tensor] : file_->tensors()) {
    facts.num_parameters += tensor.elements();
    facts.weight_bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  return facts;
}

std::string GgufWeights::quantization() const {
  std::set<std::string> types;
  for (const auto& [name, tensor] : file_->tensors()) {
    const auto* info = ggml_type_info(tensor.type);
    if (!info->plain) types.insert(info->name);
  }
  std::string list;
  for (const auto& type : types) list += (list.empty() ? "" : ", ") + type;
  return list;
}

Status GgufWeights::check_all_used(const models::ModelSpec& spec) const {
  const std::lock_guard lock(mutex_);
  std::int64_t num_left = 0;
  const GgufTensor* first = nullptr;
  for (const auto& [name, tensor] : file_->tensors()) {
    if (used_.contains(name) || name == kRopeFactors) continue;
    if (first == nullptr) first = &tensor;
    ++num_left;
  }
  if (num_left == 0) return {};
  return fail(ErrorCode::unsupported,
              file_->path_of(*first) + ": tensor " + quote(first->name) +
                  (num_left > 1 ? " and " + std::to_string(num_left - 1) + " more are" : " is") + " not used by " +
                  spec.architecture + " as the metadata describes it");
}

}  // namespace pagoda::io
