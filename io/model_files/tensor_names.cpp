#include "io/model_files/tensor_names.hpp"

#include <algorithm>
#include <array>

namespace pagoda::io {
namespace {

bool starts_with_any(std::string_view name, auto... prefixes) {
  return (name.starts_with(prefixes) || ...);
}

/// Removes the prefixes of the whole model.
std::string_view without_wrappers(std::string_view name) {
  constexpr std::array<std::string_view, 4> kWrappers{"module.", "_orig_mod.", "base_model.model.", "language_model."};
  const auto strip = [&] {
    return std::ranges::any_of(kWrappers, [&](std::string_view wrapper) {
      if (!name.starts_with(wrapper)) return false;
      name.remove_prefix(wrapper.size());
      return true;
    });
  };
  while (strip()) continue;
  return name;
}

std::string without_prefixes(std::string_view stored) {
  std::string_view name = without_wrappers(stored);
  constexpr std::array<std::string_view, 2> kParts{"model.language_model.", "model.text_model."};
  for (const std::string_view part : kParts) {
    if (!name.starts_with(part)) continue;
    name.remove_prefix(part.size());
    return starts_with_any(name, "model.", "transformer.", "lm_head.") ? std::string(name)
                                                                       : "model." + std::string(name);
  }
  return std::string(name);
}

}  // namespace

std::vector<std::string> canonical_tensor_names(const std::vector<std::string>& stored) {
  std::vector<std::string> names;
  names.reserve(stored.size());
  for (const std::string& name : stored) names.push_back(without_prefixes(name));
  if (std::ranges::find(names, "embed_tokens.weight") == names.end()) return names;
  for (std::string& name : names) {
    if (starts_with_any(name, "embed_tokens.", "layers.", "norm.")) name.insert(0, "model.");
  }
  return names;
}

bool is_computed_buffer(std::string_view name) {
  constexpr std::array kEndings{
      ".inv_freq", ".attn.bias", ".masked_bias", ".position_ids", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

bool is_vocabulary_map(std::string_view name) {
  return name == "d2t" || name == "t2d";
}

bool is_beside_language_model(std::string_view name) {
  constexpr std::array kHeads{"v_head.", "value_head.", "reward_head.", "score.", "classifier.", "qa_outputs.", "mtp."};
  if (std::ranges::any_of(kHeads, [&](const char* head) { return name.starts_with(head); })) return true;
  if (name.starts_with("model.")) name.remove_prefix(std::string_view("model.").size());
  constexpr std::array kParts{"vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "audio_tower."};
  return std::ranges::any_of(kParts, [&](const char* part) { return name.starts_with(part); });
}

}  // namespace pagoda::io
