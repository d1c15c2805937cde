#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pagoda::io {

/// The names that models ask for, of the tensors that a file calls `stored`. Training programs, adapters that were
/// merged and models with a vision part put prefixes in front ("module.", "base_model.model.", "language_model.",
/// "model.language_model."), and a base model alone lacks "model.".
std::vector<std::string> canonical_tensor_names(const std::vector<std::string>& stored);

/// Whether `name` is that of a constant that older versions of transformers wrote beside the weights: rotary
/// frequencies, causal masks, positions. Models compute them.
bool is_computed_buffer(std::string_view name);

/// Whether a causal language model has no use for the tensor, whatever is in it: value, reward and classification
/// heads, vision and audio parts, and layers that predict further tokens.
bool is_beside_language_model(std::string_view name);

}  // namespace pagoda::io
