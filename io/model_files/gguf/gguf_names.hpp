#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/models/gguf_architecture.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

using models::GgufArchitecture;

/// Name of the tensor with the factor of each frequency, where a model's maker computed the factors once (Llama 3.1 and
/// later). It is no weight of a module; gguf_config reads it.
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

/// Key, after "<architecture>.", of the bias of ALiBi's steepest slope, for architectures that have rotary positions in
/// some sizes and ALiBi in others; 0 means rotary positions. llama.cpp, which decides by the number of layers, does not
/// write it.
constexpr std::string_view kMaxAlibiBias = "attention.max_alibi_bias";
constexpr float kUsualAlibiBias = 8.0F;

/// Returns the architecture of `file`. Errors: bad_file (the file names none), unsupported (an unknown architecture:
/// the message has its name and the known names).
Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file);

/// Returns "baichuan, cohere2, ...", for messages.
std::string gguf_architecture_names();

/// Returns all keys of the architecture that have a key of config.json with the same meaning.
std::vector<models::GgufKey> gguf_keys(const GgufArchitecture& architecture);

/// Returns the name of a tensor in GGUF ("blk.0.attn_q.weight") for its name in Hugging Face's files
/// ("model.layers.0.self_attn.q_proj.weight"); nothing when GGUF has no such tensor.
std::optional<std::string> gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name);

/// The inverse of gguf_tensor_name. Two modules have the name ffn_up in GGUF: `packs_gate` chooses the one that has the
/// rows of the gate too.
std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    bool packs_gate);

/// Returns the name for a tensor of a model: the gate is packed where `file` does not have it as a tensor.
std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    const GgufFile& file);

struct GgufHeads {
  std::int64_t queries = 1;
  std::int64_t keys = 1;  ///< number of key heads, which is that of value heads
};
/// Errors: bad_file (a number of heads that is no integer), bad_config (a number outside 1 to kMaxHeads).
Result<GgufHeads> read_gguf_heads(const GgufFile& file, const GgufArchitecture& architecture);

/// A range of rows of a Hugging Face tensor that is one tensor in GGUF.
struct GgufRowRange {
  std::string name;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};
/// Returns the GGUF tensors of the tensor `name` with `num_rows` rows, in order: one tensor, or queries, keys and
/// values where Hugging Face packs them and GGUF does not. Empty when GGUF has no such tensor.
std::vector<GgufRowRange> gguf_tensors_of(const GgufArchitecture& architecture, std::string_view name,
                                          std::int64_t num_rows, const GgufHeads& heads);

/// A packed tensor of Hugging Face's files, with the GGUF names of its parts in the order of its rows.
struct GgufPackedTensor {
  std::string name;
  std::vector<std::string> parts;
};
std::optional<GgufPackedTensor> packed_tensor_of(const GgufArchitecture& architecture, std::string_view name);

/// Returns whether 1 is added to the tensor that GGUF calls `name`.
bool includes_one(const GgufArchitecture& architecture, std::string_view name);

/// Returns whether the matrix that GGUF calls `name` is transposed in Hugging Face's files.
bool is_transposed_in_folders(const GgufArchitecture& architecture, std::string_view name);

/// Returns the number of heads whose rows are interleaved in the tensor that GGUF calls `name`; 0 when rows are in
/// order.
std::int64_t interleaved_heads(const GgufArchitecture& architecture, std::string_view name, const GgufHeads& heads);
/// Returns the row, in a tensor whose heads are interleaved, of row `row` in Hugging Face's order.
std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim);

}  // namespace pagoda::io
