#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

/// A matrix of an adapter in the host's memory: [rows, columns], row-major. A vector is [rows, 1].
struct AdapterMatrix {
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> data;
};

/// Low-rank change of a linear layer (LoRA, Hu et al. 2021): y = W x + scale * B (A x). Of an embedding: row t of the
/// table changes by scale * B A[:, t].
struct LoraChange {
  AdapterMatrix a;     ///< [rank, in_features]; [rank, vocab_size] of an embedding
  AdapterMatrix b;     ///< [out_features, rank]; [width, rank] of an embedding
  float scale = 1.0F;  ///< alpha / rank, or alpha / sqrt(rank) with rsLoRA
  /// Magnitudes [out_features] of DoRA (Liu et al. 2024): row n of W + scale * B A is scaled to this norm.
  std::optional<AdapterMatrix> magnitude;

  std::int64_t rank() const { return a.rows; }
};

/// The changes of an adapter to one module.
struct ModuleChange {
  std::string module;  ///< full name as in a Hugging Face checkpoint, for example "model.layers.0.self_attn.q_proj"
  std::optional<LoraChange> lora;
  std::optional<AdapterMatrix> weight;  ///< replaces the weight of an embedding or of the head (modules_to_save)
  std::optional<AdapterMatrix> bias;    ///< replaces the bias of a linear layer
};

/// Tokens without an id that a prompt adapter puts in front of each prompt.
struct VirtualTokens {
  enum class Kind : std::uint8_t {
    embeddings,  ///< rows are embeddings [tokens, width] (prompt tuning, Lester et al. 2021; p-tuning, Liu et al. 2021)
    prefix,      ///< rows are keys and values [tokens, layers * 2 * heads * head_dim], for each layer keys and then
                 ///< values, as they are after norms and rotation (prefix tuning, Li and Liang 2021)
  };
  Kind kind = Kind::embeddings;
  AdapterMatrix rows;
  std::int64_t num_heads = 0;  ///< of the keys of a prefix; 0 = the files do not say it
};

/// An adapter as its files give it. It is not yet checked against a model. It has changes or virtual tokens.
struct Adapter {
  std::vector<ModuleChange> changes;  ///< one for each module, in the order of their names
  std::optional<VirtualTokens> prompt = std::nullopt;
  std::uint64_t fingerprint = 0;  ///< fingerprint_of what the files contain; see AdapterFacts

  /// Returns the number of virtual tokens.
  std::int64_t num_virtual_tokens() const { return prompt ? prompt->rows.rows : 0; }
};

/// Returns a hash of the changes and virtual tokens of an adapter: XXH3, never 0. It depends on the types of elements,
/// but not on the files' format or on keys that change nothing.
std::uint64_t fingerprint_of(const Adapter& adapter);

/// Returns the largest rank of an adapter's changes; 0 if it has no low-rank change.
std::int64_t largest_rank(const Adapter& adapter);

/// Rounds low-rank matrices of float32 to `dtype`, which has 16 bits. Errors (bad_file): an element is too large for
/// it; the message names the module.
Status round_matrices(Adapter& adapter, DType dtype);

}  // namespace pagoda::adapters
