#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The tensor with the factor of each frequency, where a model's maker computed them once for all (Llama 3.1 and
/// later). It is no weight of a module: gguf_config reads it.
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

/// Of architectures that have rotary positions in some sizes and ALiBi in others, the bias of ALiBi's steepest slope
/// behind "<architecture>."; 0 where positions are rotary. llama.cpp, which goes by the number of layers, leaves it
/// out.
constexpr std::string_view kMaxAlibiBias = "attention.max_alibi_bias";
constexpr float kUsualAlibiBias = 8.0F;

/// A module under its name in Hugging Face's files and in GGUF.
struct GgufModule {
  std::string_view hugging_face;
  std::string_view gguf;
};

/// A value of the metadata and the one of config.json that says the same.
struct GgufKey {
  std::string_view gguf;  ///< behind "<architecture>."
  std::string_view hugging_face;
  bool is_real = false;  ///< a float32, else a uint32
};

/// What GGUF calls an architecture, and what of its files differs from Hugging Face's.
struct GgufArchitecture {
  std::string_view name;          ///< general.architecture
  std::string_view hugging_face;  ///< architectures[0] of config.json
  std::span<const GgufKey> keys;
  std::span<const GgufModule> outer;   ///< modules that stand once
  std::span<const GgufModule> layers;  ///< modules of a layer
  std::string_view layer_prefix;       ///< "model.layers."; GGUF's is "blk."
  std::string_view optional_module{};  ///< what some folders leave out in front of names
  /// Rows of queries and keys lie as rotations of neighbours (2i, 2i + 1) want them, where Hugging Face turns (i, i +
  /// head_dim / 2).
  bool interleaved_heads = false;
  /// Linear layers are stored as [out, in], where Hugging Face has them transposed.
  bool untransposed = false;
  /// A module of layers whose rows are queries, keys and values, which GGUF has as three tensors.
  std::string_view packed_qkv{};
};

/// The architecture of `file`. Errors: bad_file (none is named), unsupported (not known: named, with the list).
Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file);

/// The one that models of `hugging_face`, architectures[0] of config.json, are stored as; null when there is none.
const GgufArchitecture* find_gguf_architecture(std::string_view hugging_face);
/// "llama, phi3, ...": for messages.
std::string gguf_architecture_names();

/// The name of a tensor in GGUF ("blk.0.attn_q.weight") for its name in Hugging Face's files
/// ("model.layers.0.self_attn.q_proj.weight"); none when GGUF has no such tensor.
std::optional<std::string> gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name);

/// The inverse. What is there of `file` tells two modules that GGUF calls the same apart.
std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    const GgufFile& file);

struct GgufHeads {
  std::int64_t queries = 1;
  std::int64_t keys = 1;  ///< and values
};
/// Errors: bad_file (a number of heads that is no integer), bad_config (not one from 1 to kMaxHeads).
Result<GgufHeads> read_gguf_heads(const GgufFile& file, const GgufArchitecture& architecture);

/// Rows of a tensor of Hugging Face's that are one of GGUF's.
struct GgufRowRange {
  std::string name;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};
/// What the tensor `name` of `num_rows` rows is in GGUF, in order: itself, or its queries, keys and values where these
/// are packed and GGUF has them apart. Empty when GGUF has no such tensor.
std::vector<GgufRowRange> gguf_tensors_of(const GgufArchitecture& architecture, std::string_view name,
                                          std::int64_t num_rows, const GgufHeads& heads);

/// The tensor of Hugging Face's that `name`, a name of Hugging Face's, is a part of: "...W_pack.weight" for
/// "...q_proj.weight", and the parts in the order of its rows, by GGUF's names. Nothing where it stands alone.
struct GgufPackedTensor {
  std::string name;
  std::vector<std::string> parts;
};
std::optional<GgufPackedTensor> packed_tensor_of(const GgufArchitecture& architecture, std::string_view name);

/// Whether the matrix that GGUF calls `name` lies transposed in Hugging Face's files.
bool is_transposed_in_folders(const GgufArchitecture& architecture, std::string_view name);

/// How many heads have their rows interleaved in the tensor that GGUF calls `name`; 0 when rows are in order.
std::int64_t interleaved_heads(const GgufArchitecture& architecture, std::string_view name, const GgufHeads& heads);
/// Where row `row` of Hugging Face's order lies in a tensor whose heads are interleaved.
std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim);

}  // namespace pagoda::io
