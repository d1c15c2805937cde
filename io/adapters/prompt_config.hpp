#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/adapters/adapter.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Limit on the virtual tokens of an adapter.
inline constexpr std::int64_t kMaxVirtualTokens = 100'000;

/// The adapter_config.json of a prompt adapter (PEFT).
struct PromptConfig {
  adapters::VirtualTokens::Kind kind = adapters::VirtualTokens::Kind::embeddings;
  std::int64_t num_virtual_tokens = 0;
  /// Columns that the file's matrix must have; absent if the config does not say it.
  std::optional<std::int64_t> columns = std::nullopt;
  std::int64_t num_heads = 0;  ///< see VirtualTokens::num_heads

  /// Parses the text of the file. Returns nothing if its peft_type is that of no prompt adapter. Every key is read, is
  /// known to change no result, or has a value that asks for nothing, as PeftConfig::parse does it.
  ///
  /// Errors: bad_config (no JSON object, a key with a wrong type or range), unsupported (a key that asks for what is
  /// not supported, an unknown key).
  static Result<std::optional<PromptConfig>> parse(std::string_view text, std::string_view file_name);
};

}  // namespace pagoda::io
