#include "io/adapters/gguf_adapter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/adapters/adapter_matrix.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_names.hpp"

namespace pagoda::io {
namespace {

using adapters::AdapterMatrix;

constexpr std::string_view kEndingA = ".lora_a";
constexpr std::string_view kEndingB = ".lora_b";
constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr const char* kAlpha = "adapter.lora.alpha";

/// Keys of adapter.* that change no result.
constexpr std::array<std::string_view, 4> kFreeAdapterKeys{"adapter.type", kAlpha, "adapter.lora.task_name",
                                                           "adapter.lora.prompt_prefix"};

/// Reads the tensors of one file.
class GgufAdapterReader {
 public:
  GgufAdapterReader(const GgufFile& file, const GgufArchitecture& architecture, double alpha, std::int64_t head_dim)
      : file_(file), architecture_(architecture), alpha_(alpha), head_dim_(head_dim) {}

  Result<adapters::Adapter> read() const {
    std::map<std::string, adapters::ModuleChange> changes;
    for (const auto& [name, tensor] : file_.tensors()) {
      if (name.ends_with(kEndingB)) {
        const std::string partner = name.substr(0, name.size() - kEndingB.size()) + std::string(kEndingA);
        if (file_.tensor(partner) == nullptr) return bad(tensor, "there is no tensor " + quote(partner));
        continue;
      }
      if (!name.ends_with(kEndingA)) {
        return bad(tensor, "only low-rank matrices are supported (NAME.lora_a, NAME.lora_b)", ErrorCode::unsupported);
      }
      const std::string weight = name.substr(0, name.size() - kEndingA.size());
      auto module = module_of(tensor, weight);
      if (!module) return fail(std::move(module.error()));
      auto lora = read_lora(tensor, weight);
      if (!lora) return fail(std::move(lora.error()));
      changes[*module] = {*module, std::move(*lora), std::nullopt, std::nullopt};
    }
    if (changes.empty()) return fail(ErrorCode::bad_file, file_.path() + ": there are no tensors");
    adapters::Adapter adapter;
    for (auto& [name, change] : changes) adapter.changes.push_back(std::move(change));
    return adapter;
  }

 private:
  tl::unexpected<Error> bad(const GgufTensor& tensor, const std::string& reason,
                            ErrorCode code = ErrorCode::bad_file) const {
    return fail(code, file_.path_of(tensor) + ": tensor " + quote(tensor.name) + ": " + reason);
  }

  /// Returns Hugging Face's name of the module with the GGUF tensor `weight`. `tensor`: for messages.
  Result<std::string> module_of(const GgufTensor& tensor, std::string_view weight) const {
    constexpr std::string_view kWeight = ".weight";
    if (is_transposed_in_folders(architecture_, weight)) {
      return bad(
          tensor,
          "adapters of " + std::string(architecture_.name) +
              " as GGUF are not supported, since llama.cpp's converter swaps their matrices; use the PEFT folder",
          ErrorCode::unsupported);
    }
    // Phi 3 is the only family with gate and values in one tensor.
    const bool packs_gate = architecture_.name == "phi3";
    const auto name = weight.ends_with(kWeight) ? hugging_face_tensor_name(architecture_, weight, packs_gate)
                                                : std::optional<std::string>();
    if (!name) return bad(tensor, std::string(architecture_.name) + " has no tensor " + quote(weight));
    if (packed_tensor_of(architecture_, *name)) {
      return bad(tensor,
                 "adapters of a part of " + std::string(architecture_.packed_qkv) +
                     " are not supported as GGUF; use the PEFT folder",
                 ErrorCode::unsupported);
    }
    return name->substr(0, name->size() - kWeight.size());
  }

  Result<adapters::LoraChange> read_lora(const GgufTensor& tensor, const std::string& weight) const {
    const GgufTensor* other = file_.tensor(weight + std::string(kEndingB));
    if (other == nullptr) return bad(tensor, "there is no tensor " + quote(weight + std::string(kEndingB)));
    auto a = matrix(tensor);
    if (!a) return fail(std::move(a.error()));
    auto b = matrix(*other);
    if (!b) return fail(std::move(b.error()));
    adapters::LoraChange lora;
    lora.a = weight == kEmbedding ? transposed(*a) : std::move(*a);
    lora.b = std::move(*b);
    if (lora.b.columns != lora.rank()) {
      return bad(*other, "its " + std::to_string(lora.b.columns) + " columns are not the rank of " +
                             quote(tensor.name) + ", " + std::to_string(lora.rank()));
    }
    if (lora.rank() > kMaxAdapterRank) {
      return bad(tensor, "rank " + std::to_string(lora.rank()) + " is more than the limit of " +
                             std::to_string(kMaxAdapterRank));
    }
    // llama.cpp takes the scale 1 for an alpha of 0.
    lora.scale = alpha_ == 0.0 ? 1.0F : static_cast<float>(alpha_ / static_cast<double>(lora.rank()));
    if (interleaved_heads(architecture_, weight, {1, 1}) == 0) return lora;
    if (head_dim_ < 2 || head_dim_ % 2 != 0 || lora.b.rows % head_dim_ != 0) {
      return bad(*other, "its " + std::to_string(lora.b.rows) + " rows are not heads of " + std::to_string(head_dim_) +
                             " rows");
    }
    lora.b = with_rows(lora.b, [&](std::int64_t row) { return interleaved_row(row, head_dim_); });
    return lora;
  }

  /// Copies a matrix. A vector is one row: writers may leave out outer sizes of 1.
  Result<AdapterMatrix> matrix(const GgufTensor& tensor) const {
    if (tensor.shape.size() > 2) return bad(tensor, "shape " + shape_text(tensor.shape) + " is no matrix");
    const GgmlTypeInfo& info = *ggml_type_info(tensor.type);
    AdapterMatrix matrix{
        info.plain.value_or(DType::f32), tensor.shape.size() == 1 ? 1 : tensor.shape.front(), tensor.shape.back(), {}};
    const std::size_t bytes = static_cast<std::size_t>(tensor.elements()) * size_of(matrix.dtype);
    try {
      matrix.data.resize(bytes);
    } catch (const std::bad_alloc&) {
      return bad(tensor, "no memory for its " + std::to_string(bytes) + " bytes", ErrorCode::out_of_memory);
    }
    if (info.plain) {
      std::memcpy(matrix.data.data(), tensor.data.data(), bytes);
    } else {
      const auto row_blocks = static_cast<std::size_t>(matrix.columns / info.block_elements * info.block_bytes);
      std::vector<float> floats(static_cast<std::size_t>(matrix.columns));
      for (std::size_t row = 0; row < static_cast<std::size_t>(matrix.rows); ++row) {
        dequantize_row(tensor.type, tensor.data.data() + row * row_blocks, matrix.columns, floats.data());
        std::memcpy(matrix.data.data() + row * floats.size() * sizeof(float), floats.data(),
                    floats.size() * sizeof(float));
      }
    }
    if (!is_finite(matrix)) return bad(tensor, "an element is infinite or not a number");
    return matrix;
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  double alpha_;
  std::int64_t head_dim_;
};

/// Checks that the string of `key` is `expected`.
Status check_text(const GgufFile& file, const char* key, std::string_view expected, ErrorCode code) {
  const auto text = file.get<std::string_view>(key);
  if (!text) return fail(text.error());
  if (!*text) return file.bad(key, "is missing: the file is no adapter");
  if (**text == expected) return {};
  return file.bad(key, quote(**text) + " is not supported here (" + std::string(expected) + ")", code);
}

}  // namespace

Result<adapters::Adapter> read_gguf_adapter(const std::filesystem::path& path, std::int64_t head_dim) {
  const auto file = GgufFile::open(path);
  if (!file) return fail(file.error());
  const GgufFile& gguf = **file;
  if (auto status = check_text(gguf, "general.type", "adapter", ErrorCode::bad_file); !status) {
    return fail(std::move(status.error()));
  }
  if (auto status = check_text(gguf, "adapter.type", "lora", ErrorCode::unsupported); !status) {
    return fail(std::move(status.error()));
  }
  const auto architecture = find_gguf_architecture(gguf);
  if (!architecture) return fail(architecture.error());
  for (const auto& [key, value] : gguf.metadata()) {
    if (!key.starts_with("adapter.") || std::ranges::find(kFreeAdapterKeys, key) != kFreeAdapterKeys.end()) continue;
    return gguf.bad(key, "is not supported", ErrorCode::unsupported);
  }
  const auto alpha = gguf.get<double>(kAlpha);
  if (!alpha) return fail(alpha.error());
  if (!*alpha) return gguf.bad(kAlpha, "is missing");
  if (!std::isfinite(**alpha) || **alpha < 0 || !std::isfinite(static_cast<float>(**alpha))) {
    return gguf.bad(kAlpha, "must be a number from 0");
  }
  return GgufAdapterReader(gguf, **architecture, **alpha, head_dim).read();
}

}  // namespace pagoda::io
