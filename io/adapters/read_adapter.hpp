#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/adapters/adapter.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads an adapter: a PEFT folder (peft_adapter.hpp), or a GGUF file with LoRA, whose name ends with ".gguf"
/// (gguf_adapter.hpp). The result is not yet checked against a model. It has its fingerprint.
///
/// `head_dim`: size of the heads of the model that the adapter is for (layers::AttentionShape::head_dim). Only GGUF
/// files need it.
///
/// Errors: those of read_peft_adapter and of read_gguf_adapter; io_failed when there is no such folder or file.
Result<adapters::Adapter> read_adapter(const std::filesystem::path& path, std::int64_t head_dim);

}  // namespace pagoda::io
