#pragma once

#include <cstdint>
#include <memory>

#include "engine/adapters/adapter.hpp"
#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/batch_adapters.hpp"
#include "engine/layers/batch_prompts.hpp"
#include "engine/step/adapter_ref.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

/// Checks that a model has all modules of an adapter, and that it can change them in these shapes. Errors (bad_file)
/// name the module and the shapes of both; a module that exists but cannot be changed (a norm, a table of positions)
/// is refused by name.
Status check(const Adapter& adapter, const layers::AdapterModules& modules);

/// Returns BoundAdapter::bytes of an adapter that has low-rank matrices of float32 for every linear layer. An adapter
/// of this rank takes more only if it replaces weights or has DoRA. The model may be built over weights without data
/// (weights::MeasuredWeights).
std::int64_t planned_bytes(std::int64_t rank, const layers::AdapterModules& modules);

/// Returns the bytes of a prompt adapter of the larger kind with `num_tokens` virtual tokens.
std::int64_t planned_prompt_bytes(std::int64_t num_tokens, const layers::AdapterModules& modules);

/// An adapter in a device's memory, bound to the modules of one model.
class BoundAdapter {
 public:
  /// Checks the adapter, computes what DoRA needs of the base's weights (dequantised if they are quantised), and
  /// uploads it. Waits until the upload is complete. `adapter` is not used afterwards; `modules` are those of the model
  /// that will run (Model::adapter_modules) and must outlive this. Errors: those of check; bad_file for a row of
  /// weights that DoRA cannot scale; out_of_memory.
  static Result<std::unique_ptr<const BoundAdapter>> create(const Adapter& adapter,
                                                            const layers::AdapterModules& modules,
                                                            kernels::Device& device);

  /// Returns what a batch refers to (layers::AdapterRows). Valid as long as this lives. A prompt adapter changes no
  /// module.
  const layers::AdapterWeights& weights() const { return weights_; }
  /// Returns what a batch refers to (layers::PromptRows) of a prompt adapter. Valid as long as this lives. Null if the
  /// adapter has no virtual tokens.
  const layers::PromptWeights* prompt() const { return prompt_.num_tokens > 0 ? &prompt_ : nullptr; }
  const AdapterFacts& facts() const { return facts_; }
  /// Returns the bytes of the device's memory.
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.bytes()); }

 private:
  AdapterFacts facts_;
  layers::AdapterWeights weights_;
  layers::PromptWeights prompt_;
  kernels::Buffer memory_;
};

}  // namespace pagoda::adapters
