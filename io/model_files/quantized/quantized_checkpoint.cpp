#include "io/model_files/quantized/quantized_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/quantized/quantized_module.hpp"

namespace pagoda::io {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string_view module_of(std::string_view name, std::string_view ending = kWeight) {
  return name.substr(0, name.size() - ending.size());
}

/// Returns whether `name` belongs to a quantised KV cache or to quantised activations in attention.
bool is_attention_scale(std::string_view name) {
  constexpr std::array kEndings{".k_scale",    ".v_scale",      ".q_scale",     ".kv_scale",
                                ".prob_scale", ".k_zero_point", ".v_zero_point"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

/// Returns the number of elements of a matrix that is packed into `num_words` words, from the tensor "weight_shape";
/// nothing where there is no such tensor, or where the words cannot hold as many.
std::optional<std::int64_t> packed_elements(const Checkpoint& checkpoint, std::string_view packed_name,
                                            std::int64_t num_words) {
  constexpr std::int64_t kMaxOfWord = 8;
  const auto shape = checkpoint.stored(std::string(module_of(packed_name, ".weight_packed")) + ".weight_shape");
  if (!shape || shape->dtype != "I64" || shape->data.size() != 2 * sizeof(std::int64_t)) return std::nullopt;
  std::array<std::int64_t, 2> sizes{};
  std::memcpy(sizes.data(), shape->data.data(), sizeof sizes);
  std::int64_t product = 0;
  const bool fits = sizes[0] >= 0 && sizes[1] >= 0 && !__builtin_mul_overflow(sizes[0], sizes[1], &product) &&
                    product <= num_words * kMaxOfWord;
  return fits ? std::optional(product) : std::nullopt;
}

/// Returns the number of parameters in an element of the tensor; 0 for tensors that only describe other tensors.
std::int64_t parameters_per_element(const QuantizationConfig& config, std::string_view name,
                                    const StoredTensor& tensor) {
  const bool is_scaled_by = name.ends_with(".qzeros") || name.ends_with(".scales") || name.ends_with(".g_idx") ||
                            name.ends_with(".SCB") || name.ends_with("_scale") || name.ends_with("_scale_inv") ||
                            name.ends_with("_zero_point") || name.ends_with("_g_idx") || name.ends_with("_shape") ||
                            name.ends_with(".weight_format") || name.find(".weight.") != name.npos ||
                            (!config.rotation.empty() && name.ends_with(rotation_ending(config)));
  if (is_scaled_by) return 0;
  const bool is_packed = name.ends_with(".weight_packed");
  const bool is_pair = (is_packed || config.method == QuantizationMethod::four_bit_table) && tensor.dtype == "U8";
  if (!is_pair && (is_packed || name.ends_with(".qweight"))) return 32 / config.bits;
  return is_pair ? 2 : 1;
}

}  // namespace

bool QuantizedCheckpoint::is_quantized_weight(std::string_view name) const {
  return name.ends_with(kWeight) && is_quantized(*checkpoint_, config_.method, module_of(name));
}

bool QuantizedCheckpoint::contains(std::string_view name) const {
  return checkpoint_->contains(name) || is_quantized_weight(name);
}

bool QuantizedCheckpoint::holds_derived(std::string_view module) const {
  const bool is_packed = config_.packs_linear && checkpoint_->contains(std::string(module) + ".weight_packed");
  const bool is_untransposed =
      is_packed || config_.method == QuantizationMethod::awq || config_.method == QuantizationMethod::gptq;
  // A head is derived for another reason.
  return is_untransposed && !module.ends_with("lm_head") && is_quantized(*checkpoint_, config_.method, module);
}

Result<weights::WeightTensor> QuantizedCheckpoint::describe(std::string_view name,
                                                            const std::vector<std::int64_t>& shape) const {
  if (!is_quantized_weight(name)) return checkpoint_->describe(name, shape);
  if (shape.size() != 2) {
    return fail(ErrorCode::bad_file, checkpoint_->path_of(name) + ": tensor " + quote(name) +
                                         ": is quantised, but the config does not ask for a matrix");
  }
  const std::lock_guard lock(mutex_);
  auto found = open_.find(name);
  if (found == open_.end() || found->second.shape != shape) {
    auto rows = open_quantized_module(*checkpoint_, config_, std::string(module_of(name)), shape[0], shape[1]);
    if (!rows) return fail(std::move(rows.error()));
    found = open_.insert_or_assign(std::string(name), Opened{shape, std::move(*rows)}).first;
  }
  return weights::WeightTensor{std::string(name), config_.dtype, shape, nullptr, found->second.rows};
}

Result<weights::WeightTensor> QuantizedCheckpoint::tensor(std::string_view name,
                                                          const std::vector<std::int64_t>& shape) const {
  if (!is_quantized_weight(name)) return checkpoint_->tensor(name, shape);
  auto described = describe(name, shape);
  if (!described) return described;
  for_each_tensor_of(config_, module_of(name), [&](const std::string& part) { checkpoint_->mark_used(part); });
  return described;
}

void QuantizedCheckpoint::release_pages(const weights::WeightTensor& tensor) const {
  if (tensor.quantized == nullptr) return checkpoint_->release_pages(tensor);
  for_each_tensor_of(config_, module_of(tensor.name),
                     [&](const std::string& part) { checkpoint_->release_pages({.name = part, .shape = {}}); });
}

std::string QuantizedCheckpoint::file_of(const weights::WeightTensor& tensor) const {
  if (tensor.quantized == nullptr) return checkpoint_->path_of(tensor.name);
  std::string name;  // name of the first part that exists
  for_each_tensor_of(config_, module_of(tensor.name), [&](const std::string& part) {
    if (name.empty() && checkpoint_->contains(part)) name = part;
  });
  return checkpoint_->path_of(name);
}

CheckpointFacts QuantizedCheckpoint::facts() const {
  CheckpointFacts facts = checkpoint_->facts();
  facts.num_parameters = 0;
  for (const auto& name : checkpoint_->tensor_names()) {
    const auto tensor = *checkpoint_->stored(name);
    const std::int64_t elements = num_elements(tensor.shape);
    const auto packed = name.ends_with(".weight_packed") ? packed_elements(*checkpoint_, name, elements) : std::nullopt;
    facts.num_parameters += packed ? *packed : elements * parameters_per_element(config_, name, tensor);
  }
  return facts;
}

Status QuantizedCheckpoint::check_all_used(const models::ModelSpec& spec) const {
  constexpr std::string_view kBias = ".bias";
  for (const auto& name : checkpoint_->tensor_names()) {
    const bool is_bias =
        name.ends_with(kBias) && is_quantized(*checkpoint_, config_.method, name.substr(0, name.size() - kBias.size()));
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    const bool is_zero_bias = is_bias && std::ranges::all_of(checkpoint_->stored(name)->data, is_zero);
    if (is_zero_bias || is_attention_scale(name)) checkpoint_->mark_used(name);
  }
  return checkpoint_->check_all_used(spec);
}

Result<std::shared_ptr<const ModelWeights>> open_folder_weights(const std::filesystem::path& folder) {
  const auto config = load_quantization_config(folder);
  if (!config) return fail(config.error());
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return fail(std::move(checkpoint.error()));
  if (!*config) return std::move(*checkpoint);
  if (const auto name = (*checkpoint)->first_strided(); !name.empty()) {
    return fail(ErrorCode::unsupported, (*checkpoint)->path_of(name) + ": tensor " + quote(name) +
                                            " is not row-major, as all tensors of a quantised model must be");
  }
  return std::make_shared<QuantizedCheckpoint>(std::move(*checkpoint), **config);
}

}  // namespace pagoda::io
