#include "io/model_files/dummy_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numbers>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/text/unicode.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/huggingface_folder.hpp"
#include "io/model_files/tokenizer_loader.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/dtype.hpp"
#include "kernels/random.hpp"

namespace pagoda::io {
namespace {

constexpr double kStandardDeviation = 0.02;
/// A prime number, so that neighbouring rows of a matrix begin at different places of the table.
constexpr std::uint32_t kTableElements = 1'000'003;

/// Returns element `i` of the table that all matrices are filled from, by the Box-Muller transform.
float table_element(std::uint32_t i) {
  constexpr std::uint64_t kSeed = 0;
  const double radius = std::sqrt(-2.0 * std::log(1.0 - kernels::sampling_uniform(kSeed, 0, i)));
  const double angle = 2.0 * std::numbers::pi * kernels::sampling_uniform(kSeed, 1, i);
  return static_cast<float>(kStandardDeviation * radius * std::cos(angle));
}

void write(DType dtype, float value, std::byte* to) {
  const auto copy = [to](auto number) { std::memcpy(to, &number, sizeof number); };
  if (dtype == DType::f16) return copy(to_f16(value));
  if (dtype == DType::bf16) return copy(to_bf16(value));
  PAGODA_ASSERT(dtype == DType::f32, "config.json names no other type");
  copy(value);
}

std::vector<std::byte> make_table(DType dtype) {
  const std::size_t element = size_of(dtype);
  std::vector<std::byte> table(kTableElements * element);
  for (std::uint32_t i = 0; i < kTableElements; ++i) write(dtype, table_element(i), table.data() + i * element);
  return table;
}

class DummyWeights final : public ModelWeights {
 public:
  explicit DummyWeights(DType dtype) : dtype_(dtype), table_(make_table(dtype)) {}

  Result<weights::WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    weights::WeightTensor tensor{.name = std::string(name), .dtype = dtype_, .shape = shape};
    const std::lock_guard lock(mutex_);
    tensors_.try_emplace(tensor.name).first->second.bytes = tensor.bytes();
    return tensor;
  }

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    auto tensor = describe(name, shape);
    const std::lock_guard lock(mutex_);
    Tensor& held = tensors_.at(tensor->name);
    if (held.memory.data() == nullptr) {
      auto memory = kernels::allocate_cpu_memory(static_cast<std::size_t>(tensor->bytes()));
      if (!memory)
        return fail(memory.error().code, "random weights of " + tensor->name + ": " + memory.error().message);
      held.memory = std::move(*memory);
      fill(*tensor, held.memory.as<std::byte>());
    }
    tensor->data = held.memory.data();
    return tensor;
  }

  bool contains(std::string_view) const override { return true; }

  void release_pages(const weights::WeightTensor& tensor) const override {
    const std::lock_guard lock(mutex_);
    if (const auto held = tensors_.find(tensor.name); held != tensors_.end()) held->second.memory = {};
  }

  bool is_mapped() const override { return false; }

  /// Counts only the tensors that were asked for.
  CheckpointFacts facts() const override {
    const std::lock_guard lock(mutex_);
    CheckpointFacts facts{.format = "dummy", .num_tensors = std::ssize(tensors_)};
    for (const auto& [name, tensor] : tensors_) facts.weight_bytes += tensor.bytes;
    facts.num_parameters = facts.weight_bytes / static_cast<std::int64_t>(size_of(dtype_));
    return facts;
  }

  Status check_all_used(const models::ModelSpec&) const override { return {}; }

 private:
  struct Tensor {
    std::int64_t bytes = 0;
    kernels::Buffer memory;  ///< empty before the tensor is read and after it was copied
  };
  /// Fills `to`, which holds zeros.
  void fill(const weights::WeightTensor& tensor, std::byte* to) const {
    const std::size_t element = size_of(dtype_);
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    if (tensor.shape.size() == 1) {
      if (tensor.name.ends_with("bias")) return;
      for (std::size_t at = 0; at < bytes; at += element) write(dtype_, 1.0F, to + at);
      return;
    }
    std::size_t from = XXH3_64bits(tensor.name.data(), tensor.name.size()) % kTableElements * element;
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t piece = std::min(bytes - at, table_.size() - from);
      std::memcpy(to + at, table_.data() + from, piece);
      at += piece;
      from = 0;
    }
  }

  DType dtype_;
  std::vector<std::byte> table_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_;  ///< by name
};

/// Returns the i-th word: " aa", " ab", ..., " zz", " aaa", ... in the characters of byte-level tokens.
std::string word(std::int64_t i) {
  constexpr std::int64_t kLetters = 26;
  std::size_t length = 2;
  std::int64_t of_length = kLetters * kLetters;
  for (; i >= of_length; of_length *= kLetters) {
    i -= of_length;
    ++length;
  }
  std::string letters(length, 'a');
  for (std::size_t at = length; at-- > 0; i /= kLetters) letters[at] = static_cast<char>('a' + i % kLetters);
  return std::string(text::byte_level_character(' ')) + letters;
}

class DummyModel final : public ModelFiles {
 public:
  explicit DummyModel(const std::filesystem::path& folder) : folder_(folder), files_(open_huggingface_folder(folder)) {}

  std::string name() const override { return files_->name(); }
  /// Random weights are not quantised, whatever those of the config's model were.
  Result<models::ModelSpec> spec() const override { return load_hf_config(folder_, StoredQuantization::ignored); }

  Result<std::shared_ptr<const ModelWeights>> weights() const override {
    const auto model = spec();
    if (!model) return fail(model.error());
    return dummy_weights(model->checkpoint_dtype);
  }

  Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const override {
    if (has_folder_tokenizer(folder_)) return files_->tokenizer();
    const auto model = spec();
    if (!model) return fail(model.error());
    return byte_tokenizer(model->vocab_size);
  }

  Result<TokenizerNames> tokenizer_names() const override { return files_->tokenizer_names(); }

  Result<SamplingDefaults> sampling_defaults() const override { return files_->sampling_defaults(); }

  Result<std::shared_ptr<const chat::ChatPrompts>> chat_prompts(
      const std::filesystem::path& override_file) const override {
    return files_->chat_prompts(override_file);
  }

 private:
  std::filesystem::path folder_;
  std::shared_ptr<const ModelFiles> files_;
};

}  // namespace

std::shared_ptr<const ModelWeights> dummy_weights(DType dtype) {
  return std::make_shared<DummyWeights>(dtype);
}

Result<std::shared_ptr<const text::Tokenizer>> byte_tokenizer(std::int64_t vocab_size) {
  constexpr std::int64_t kBytes = 256;
  if (vocab_size < kBytes) {
    return fail(ErrorCode::unsupported,
                "without a tokenizer each byte is a token: 256 tokens are needed, but the vocabulary has only " +
                    std::to_string(vocab_size) + " tokens");
  }
  text::TokenizerSpec spec;
  for (std::int64_t i = 0; i < vocab_size; ++i) {
    spec.model.vocab.emplace_back(
        i < kBytes ? std::string(text::byte_level_character(static_cast<std::uint8_t>(i))) : word(i - kBytes),
        static_cast<TokenId>(i));
  }
  spec.pre_tokenizers.emplace_back(text::ByteLevelPreTokenizer{.add_prefix_space = false, .use_regex = true});
  spec.decoders = {text::ByteLevelDecoder{}};
  return text::Tokenizer::create(spec);
}

Result<std::shared_ptr<const ModelFiles>> open_dummy_model(const std::filesystem::path& path) {
  const auto folder = path.filename() == "config.json" ? path.parent_path() : path;
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "config.json", ignored)) {
    return fail(ErrorCode::bad_config, path.string() + ": random weights (load_format dummy) need a config.json there",
                "model");
  }
  return std::make_shared<DummyModel>(folder.empty() ? "." : folder);
}

}  // namespace pagoda::io
