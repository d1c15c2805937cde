#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pagoda::io {

/// Returns the names that models ask for, for the tensors with the names `stored` in a file. Training programs, merged
/// adapters and models with a vision part add prefixes ("module.", "base_model.model.", "language_model.",
/// "model.language_model."), and a base model alone lacks "model.".
std::vector<std::string> canonical_tensor_names(const std::vector<std::string>& stored);

/// Returns whether `name` is a constant that older versions of transformers wrote beside the weights: rotary
/// frequencies, causal masks, positions. Models compute these constants.
bool is_computed_buffer(std::string_view name);

/// Returns whether `name` maps the tokens of a draft head to those of its model, or back.
bool is_vocabulary_map(std::string_view name);

/// Returns whether a causal language model does not use the tensor, whatever its values are: value, reward and
/// classification heads, vision and audio parts, and layers that predict further tokens.
bool is_beside_language_model(std::string_view name);

}  // namespace pagoda::io
