#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/adapters/adapter.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads a LoRA adapter from a GGUF file as llama.cpp's converter writes it: general.type "adapter", adapter.type
/// "lora", adapter.lora.alpha, and two tensors for each module, NAME.lora_a [rank, in_features] and NAME.lora_b
/// [out_features, rank], where NAME is the GGUF name of the weight. A of token_embd.weight is transposed. Quantised
/// tensors become float32. Modules get the names of a Hugging Face checkpoint.
///
/// `head_dim`: size of the base model's heads. The files of some architectures (Llama) have the rows of queries and
/// keys in another order, which depends on the size.
///
/// Errors, one line that names file, tensor or key, and reason: errors of GgufFile::open; bad_file (a model, a missing
/// key, a tensor that is none of an adapter's or has no partner, shapes that do not fit, elements that are infinite or
/// NaN, no tensor at all), unsupported (another method, an unknown architecture, a key of adapter.* that changes
/// results, norms; layers that Hugging Face has transposed (GPT-2), since the converter swaps their matrices).
Result<adapters::Adapter> read_gguf_adapter(const std::filesystem::path& path, std::int64_t head_dim);

}  // namespace pagoda::io
