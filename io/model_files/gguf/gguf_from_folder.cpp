#include "io/model_files/gguf/gguf_from_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "engine/layers/normalized_rows.hpp"
#include "engine/models/transpose.hpp"
#include "io/model_files/chat_template_files.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/folder_spec.hpp"
#include "io/model_files/generation_config.hpp"
#include "io/model_files/gguf/element_changes.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_config_writer.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"
#include "io/model_files/huggingface_folder.hpp"
#include "io/model_files/tensor_names.hpp"
#include "io/model_files/tokenizer_config.hpp"

namespace pagoda::io {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::string_view kNormalizedHead = "normalized_head";  // a fact of models::ModelSpec

std::optional<GgmlType> plain_type(std::string_view dtype) {
  if (dtype == "F32") return ggml::kF32;
  if (dtype == "F16") return ggml::kF16;
  if (dtype == "BF16") return ggml::kBf16;
  return std::nullopt;
}

/// Changes that turn a folder's tensor into GGUF's.
struct Change {
  bool normalized = false;  ///< whether each row is scaled to length 1
  bool transposed = false;
  std::int64_t interleaved_heads = 0;  ///< number of heads whose rows are interleaved; 0: rows stay in order
  bool widened = false;                ///< whether elements become float32
  bool one_added = false;              ///< whether 1 is added to each element; the elements are or become float32

  bool is_none() const { return !normalized && !transposed && interleaved_heads == 0 && !widened && !one_added; }
};

DType dtype_of(GgmlType type) {
  return *ggml_type_info(type)->plain;
}

/// Rows of a tensor of the folder that are written.
struct RowsToWrite {
  GgmlType type{};
  std::size_t num_rows = 0;
  std::span<const std::byte> data;
};

/// Writes the changed elements to `memory`, step by step.
void apply_change(const Change& change, const RowsToWrite& from, Bytes& memory) {
  const GgmlType type = from.type;
  const auto width = static_cast<std::size_t>(ggml_type_info(type)->block_bytes);
  const std::size_t rows = from.num_rows;
  const std::size_t columns = from.data.size() / width / rows;
  memory.assign(from.data.begin(), from.data.end());
  const auto matrix_at = [&](const std::byte* data) -> kernels::WeightMatrix {
    return {data, dtype_of(type), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
  };
  if (change.normalized) {
    const Bytes aligned = memory;
    layers::normalize_rows(matrix_at(aligned.data()), memory.data());
  }
  if (change.transposed) models::transpose(matrix_at(from.data.data()), memory.data());
  if (change.interleaved_heads > 0) {
    const std::int64_t head_dim = static_cast<std::int64_t>(rows) / change.interleaved_heads;
    const std::size_t row_bytes = columns * width;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto to = static_cast<std::size_t>(interleaved_row(static_cast<std::int64_t>(row), head_dim));
      std::memcpy(memory.data() + to * row_bytes, from.data.data() + row * row_bytes, row_bytes);
    }
  }
  if (change.widened) {
    Bytes wide(rows * columns * sizeof(float));
    dequantize_row(type, memory.data(), static_cast<std::int64_t>(rows * columns),
                   reinterpret_cast<float*>(wide.data()));
    memory = std::move(wide);
  }
  if (change.one_added) add_to_floats(1.0F, memory);
}

/// Adds a checkpoint's tensors, with their changes.
class FolderTensors {
 public:
  FolderTensors(std::shared_ptr<const Checkpoint> checkpoint, const models::ModelSpec& spec, GgufModelParts& parts)
      : checkpoint_(std::move(checkpoint)), spec_(spec), parts_(parts) {}

  Status add_all() {
    for (const std::string& name : checkpoint_->tensor_names()) {
      const bool is_of_no_use = is_computed_buffer(name) || is_beside_language_model(name) ||
                                (spec_.tie_word_embeddings && name == "lm_head.weight");
      if (is_of_no_use) continue;
      if (Status status = add(name); !status) return status;
    }
    return {};
  }

 private:
  /// Returns whether the model normalizes the rows of its head. GGUF cannot express this, so the rows are written
  /// normalized.
  bool is_normalized_head(const std::string& name) const {
    const auto fact = std::ranges::find(spec_.facts, kNormalizedHead, &models::Fact::first);
    return name == "lm_head.weight" && fact != spec_.facts.end() && fact->second == models::Fact::second_type(true);
  }

  Status add(const std::string& name) {
    const auto refuse = [&](const std::string& reason) {
      return fail(ErrorCode::unsupported, checkpoint_->path_of(name) + ": tensor " + quote(name) + " " + reason,
                  "model");
    };
    const auto stored = checkpoint_->stored(name);
    if (!stored) return refuse("is not row-major");
    const auto type = plain_type(stored->dtype);
    if (!type || stored->data.empty() || stored->shape.empty() || stored->shape.size() > 2)
      return refuse("is not a matrix or vector of numbers");
    const auto ranges = gguf_tensors_of(*parts_.architecture, name, stored->shape.front(), parts_.heads);
    if (ranges.empty()) return refuse("has no name in GGUF");
    const bool is_matrix = stored->shape.size() == 2;
    const std::size_t row_bytes = stored->data.size() / static_cast<std::size_t>(stored->shape.front());
    for (const GgufRowRange& range : ranges) {
      const Change change{.normalized = is_normalized_head(name),
                          .transposed = is_matrix && is_transposed_in_folders(*parts_.architecture, range.name),
                          .interleaved_heads = interleaved_heads(*parts_.architecture, range.name, parts_.heads),
                          .widened = !is_matrix && *type != ggml::kF32,
                          .one_added = !is_matrix && includes_one(*parts_.architecture, range.name)};
      if (change.interleaved_heads > 0 && range.num_rows % (2 * change.interleaved_heads) != 0) {
        return refuse("is not " + std::to_string(change.interleaved_heads) + " heads of an even size");
      }
      GgufTensorHeader tensor{
          range.name, change.widened ? ggml::kF32 : *type, {stored->shape.begin(), stored->shape.end()}};
      tensor.shape.front() = range.num_rows;
      const RowsToWrite rows{.type = *type,
                             .num_rows = static_cast<std::size_t>(range.num_rows),
                             .data = stored->data.subspan(static_cast<std::size_t>(range.first_row) * row_bytes,
                                                          static_cast<std::size_t>(range.num_rows) * row_bytes)};
      if (change.transposed) std::ranges::reverse(tensor.shape);
      parts_.tensors.push_back({std::move(tensor), [checkpoint = checkpoint_, rows, change](Bytes& memory) {
                                  if (change.is_none()) return rows.data;
                                  apply_change(change, rows, memory);
                                  return std::span<const std::byte>(memory);
                                }});
    }
    return {};
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  const models::ModelSpec& spec_;
  GgufModelParts& parts_;
};

void add_rope_factors(const std::vector<float>& factors, GgufModelParts& parts) {
  if (factors.empty()) return;
  parts.tensors.push_back({{std::string(kRopeFactors), ggml::kF32, {std::ssize(factors)}}, [factors](Bytes& memory) {
                             const auto bytes = std::as_bytes(std::span(factors));
                             memory.assign(bytes.begin(), bytes.end());
                             return std::span<const std::byte>(memory);
                           }});
}

/// Returns the name of a special token that a chat template of `folder` uses and that has another text in `file`; empty
/// when there is none.
Result<std::string> changed_template_token(const std::filesystem::path& folder, const GgufFile& file) {
  const auto templates = folder_chat_templates(folder);
  if (!templates) return fail(templates.error());
  const auto config = load_tokenizer_config(folder);
  if (!config) return fail(config.error());
  const auto written = gguf_special_tokens(file);
  if (!written) return fail(written.error());
  std::set<std::string> names;
  for (const auto& [name, token] : *written) names.insert(name);
  for (const auto& [name, token] : config->special_tokens) names.insert(name);
  names.erase("");
  for (const std::string& name : names) {
    const auto* token = config->special_token(name);
    const auto found = written->find(name);
    if ((token == nullptr ? "" : token->content) == (found == written->end() ? "" : found->second)) continue;
    const auto asks = [&](const auto& each) { return each.source.find(name) != std::string::npos; };
    if (std::ranges::any_of(*templates, asks)) return name;
  }
  return std::string();
}

}  // namespace

Result<GgufModelParts> gguf_parts_of_folder(const std::filesystem::path& folder) {
  const auto spec = load_folder_spec(folder);
  if (!spec) return fail(spec.error());
  GgufModelParts parts;
  const auto config = write_gguf_config(folder, parts.metadata);
  if (!config) return fail(config.error());
  parts.architecture = config->architecture;
  parts.heads = config->heads;
  parts.metadata.set("general.type", "model");
  parts.metadata.set("general.name", open_huggingface_folder(folder)->name());
  const auto defaults = load_sampling_defaults(folder);
  if (!defaults) return fail(defaults.error());
  write_gguf_sampling_defaults(*defaults, parts.metadata);
  if (Status status = write_gguf_tokenizer(folder, *spec, parts.metadata); !status) {
    return fail(std::move(status.error()));
  }
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return fail(std::move(checkpoint.error()));
  if (Status status = FolderTensors(std::move(*checkpoint), *spec, parts).add_all(); !status) {
    return fail(std::move(status.error()));
  }
  add_rope_factors(config->rope_factors, parts);
  return parts;
}

Status check_gguf_of_folder(const std::filesystem::path& folder, const std::filesystem::path& written) {
  const auto refuse = [&](const char* file, const std::string& what) {
    return fail(ErrorCode::unsupported, (folder / file).string() + ": GGUF cannot express " + what, "model");
  };
  const auto file = GgufFile::open(written);
  if (!file) return fail(file.error());
  const auto wanted = load_folder_spec(folder);
  if (!wanted) return fail(wanted.error());
  const auto spec = read_gguf_spec(**file);
  if (!spec) return fail(spec.error());
  for (const auto& [fact, value] : wanted->facts) {
    if (fact == kNormalizedHead) continue;  // the rows are normalized in the file
    const auto said = std::ranges::find(spec->facts, fact, &models::Fact::first);
    if (said == spec->facts.end() || said->second != value) return refuse("config.json", "the value of " + fact);
  }
  if (!has_same_attention(*spec, *wanted)) {
    return refuse("config.json", "other windows, positions, factors or softcaps in layers of this architecture");
  }
  if (spec->vocab_size != wanted->vocab_size || spec->tie_word_embeddings != wanted->tie_word_embeddings ||
      spec->max_position_embeddings != wanted->max_position_embeddings ||
      spec->position_limit != wanted->position_limit) {
    return refuse("config.json", "its vocabulary size, tied embeddings or number of positions");
  }
  for (const TokenId token : wanted->eos_token_ids) {
    if (std::ranges::find(spec->eos_token_ids, token) == spec->eos_token_ids.end()) {
      std::error_code ignored;
      const bool is_generation = std::filesystem::exists(folder / "generation_config.json", ignored);
      return refuse(is_generation ? "generation_config.json" : "config.json",
                    "the id " + std::to_string(token) + " of eos_token_id, for which it has no key");
    }
  }
  const auto read_back = read_gguf_tokenizer(**file);
  if (!read_back) return fail(read_back.error());
  if (Status status = check_gguf_tokenizer(folder, *read_back); !status) return status;
  const auto name = changed_template_token(folder, **file);
  if (!name) return fail(name.error());
  if (name->empty()) return {};
  return fail(ErrorCode::unsupported,
              (folder / "tokenizer_config.json").string() + ": a chat template uses " + *name +
                  ", which would have another text in GGUF",
              "model");
}

}  // namespace pagoda::io
