#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear_inputs.hpp"
#include "engine/layers/rows.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// One of the projections that a Linear computes together.
struct Projection {
  std::string_view name;  ///< its module, for example "q_proj"
  std::int64_t out_features = 0;
};

/// What becomes of a row of outputs.
enum class Into : std::uint8_t {
  set,  ///< y = ...
  add,  ///< y += ...
};

/// y = x W^T + b for one or several projections of the same input. Their outputs stand side by side in a row, each
/// weight stays where it lies in the checkpoint, unless the source of weights quantises it. Neighbours of one format
/// are computed together.
class Linear {
 public:
  Linear() = default;
  /// Takes `<name>.weight` [out_features, in_features] and, with `bias`, `<name>.bias` [out_features] of each
  /// projection.
  Linear(const WeightLoader& loader, std::span<const Projection> projections, std::int64_t in_features, bool bias);
  Linear(const WeightLoader& loader, const Projection& projection, std::int64_t in_features, bool bias)
      : Linear(loader, {&projection, 1}, in_features, bias) {}
  /// The layer `module` with `<other>.weight` [out_features, in_features] of another one: a head tied to the embedding.
  static Linear tied(const WeightLoader& module, const WeightLoader& other, std::int64_t out_features,
                     std::int64_t in_features);
  /// The layer `module` with a weight that is computed, and a bias of its module or none.
  static Linear derived(const WeightLoader& module, const weights::DerivedWeight& weight, bool bias);

  std::int64_t in_features() const { return in_features_; }
  /// Sum of the projections' outputs: the width of a row of y.
  std::int64_t out_features() const { return out_features_; }

  /// The type of the rows that the layer reads fastest: that of its weights where the device takes narrow rows.
  DType input_type(const ForwardPass& pass) const { return pass.takes_narrow_rows() ? narrow_type_ : DType::f32; }

  /// x: [num_rows, in_features]; y: [num_rows, out_features].
  void operator()(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y, Into into = Into::set) const;

 private:
  /// Neighbouring projections that one op computes: all plain, or all quantised in one format.
  struct Part {
    std::vector<kernels::WeightMatrix> plain;
    std::vector<kernels::QuantizedMatrix> quantized;
    std::vector<const void*> biases;  // empty, or one per weight
    DType bias_dtype = DType::f32;
    std::int64_t first_feature = 0;  // of y

    bool takes(const weights::LinearWeight& weight) const;
  };

  /// A weight, with its bias or null, behind those that are there.
  void add(weights::LinearWeight weight, const WeightVector* bias);

  std::vector<Part> parts_;
  std::vector<LinearModule> modules_;                // none of a layer that has no weight of its own
  std::vector<std::shared_ptr<const void>> memory_;  // of weights that do not lie in the source
  DType narrow_type_ = DType::f32;  // that of all weights; float32 where they differ, are quantised or have scales
  std::int64_t in_features_ = 0;
  std::int64_t out_features_ = 0;
};

}  // namespace pagoda::layers
