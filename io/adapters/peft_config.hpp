#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/adapters/module_patterns.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Biases that a PEFT adapter trains: no bias, all biases of the model, those of the layers with matrices.
enum class AdapterBias : std::uint8_t { none, all, lora_only };

/// The adapter_config.json of a LoRA adapter (PEFT). Modules have their names in the model that the adapter was trained
/// for, for example "model.layers.0.self_attn.q_proj".
class PeftConfig {
 public:
  /// Parses the text of the file. Every key is read, is known to change no result, or has a value that asks for nothing
  /// (null, false, an empty list or object). Any other key is an error with its name.
  ///
  /// Errors: bad_config (no JSON object, a key with a wrong type or range, a pattern that is no regular expression),
  /// unsupported (a method other than LoRA, a key that asks for what is not supported, an unknown key).
  static Result<PeftConfig> parse(std::string_view text, std::string_view file_name);

  bool uses_dora() const { return uses_dora_; }
  AdapterBias bias() const { return bias_; }
  /// Returns the rank that the config gives to a module. Error: a pattern takes too many steps.
  Result<std::int64_t> rank_of(std::string_view module) const;
  /// Returns alpha / rank, or alpha / sqrt(rank) with rsLoRA. Errors: as above; a scale that float32 does not hold.
  Result<float> scale_of(std::string_view module, std::int64_t rank) const;
  /// Returns whether the config chooses the module: target_modules, exclude_modules, layers_to_transform, and
  /// it is not one of modules_to_save. Of
  /// "all-linear" and of no target_modules every module is chosen, since both depend on the model. Error: as above.
  Result<bool> targets(std::string_view module) const;
  /// Returns whether the weights of the module are saved as a whole (modules_to_save).
  Result<bool> saves(std::string_view module) const;

 private:
  void read_layers(ConfigReader& reader);
  Error in_file(Error error) const;

  std::string file_name_;
  std::int64_t rank_ = 0;
  double alpha_ = 0.0;
  bool uses_rs_lora_ = false;
  bool uses_dora_ = false;
  AdapterBias bias_ = AdapterBias::none;
  bool targets_all_ = false;
  ModuleChoice target_modules_;
  ModuleChoice exclude_modules_;
  ModuleChoice modules_to_save_;
  std::vector<std::int64_t> layers_;  ///< layers_to_transform; empty = all
  std::vector<NamePattern> layer_prefixes_;
  PatternValues ranks_;
  PatternValues alphas_;
};

}  // namespace pagoda::io
