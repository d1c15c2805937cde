#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear_inputs.hpp"
#include "engine/layers/rows.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// One of the projections that a Linear computes together.
struct Projection {
  std::string_view name;  ///< name of its module, for example "q_proj"
  std::int64_t out_features = 0;
};

/// Whether outputs are added to the values in y or replace them.
enum class Accumulate : std::uint8_t {
  no,   ///< y = ...
  yes,  ///< y += ...
};

/// y = x W^T + b for one or several projections of the same input. Their outputs stand side by side in a row of y. A
/// weight stays where it lies in the checkpoint unless the source of weights quantises it. One op computes neighbouring
/// projections whose weights have the same format. Each projection is a module that adapters can change.
class Linear {
 public:
  Linear() = default;
  /// Takes `<name>.weight` [out_features, in_features] of each projection and, with `bias`, its `<name>.bias`
  /// [out_features].
  Linear(const WeightLoader& loader, std::span<const Projection> projections, std::int64_t in_features, bool bias,
         AdapterModule::Kind kind = AdapterModule::Kind::linear);
  Linear(const WeightLoader& loader, const Projection& projection, std::int64_t in_features, bool bias,
         AdapterModule::Kind kind = AdapterModule::Kind::linear)
      : Linear(loader, {&projection, 1}, in_features, bias, kind) {}
  /// Returns the layer `module` whose weight is `<other>.weight` [out_features, in_features]: a head tied to the
  /// embedding.
  static Linear tied(const WeightLoader& module, const WeightLoader& other, std::int64_t out_features,
                     std::int64_t in_features);
  /// Returns the layer `module` with a computed weight and, with `bias`, the bias of its module.
  static Linear derived(const WeightLoader& module, const weights::DerivedWeight& weight, bool bias);

  std::int64_t in_features() const { return in_features_; }
  /// Returns the width of a row of y: the sum of the projections' outputs.
  std::int64_t out_features() const { return out_features_; }

  /// Returns the type of rows that the layer reads fastest: the type of its weights if the device takes narrow rows,
  /// otherwise float32.
  DType input_type(const ForwardPass& pass) const { return pass.supports_narrow_rows() ? narrow_type_ : DType::f32; }

  /// x: [num_rows, in_features]; y: [num_rows, out_features]. Rows that have an adapter (ForwardBatch::adapters) then
  /// get its changes; the results of other rows do not depend on them.
  void operator()(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y,
                  Accumulate accumulate = Accumulate::no) const;

  /// As operator(), for a layer of which each rank has a part of the inputs: y is the sum of what the ranks compute.
  void sum_over_ranks(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y, Accumulate accumulate) const {
    pass.sum_over_ranks(num_rows * out_features_, y, accumulate == Accumulate::yes, [&](float* part, bool adds) {
      (*this)(pass, x, num_rows, part, adds ? Accumulate::yes : Accumulate::no);
    });
  }

 private:
  /// Neighbouring projections that one op computes: all plain, or all quantised in one format.
  struct Part {
    std::vector<kernels::WeightMatrix> plain;
    std::vector<kernels::QuantizedMatrix> quantized;
    std::vector<const void*> biases;  // empty, or one for each weight
    DType bias_dtype = DType::f32;
    std::int64_t first_feature = 0;  // column of y where this part's outputs begin

    bool takes(const weights::LinearWeight& weight) const;
  };

  /// A projection that adapters can change.
  struct Site {
    ModuleId module = kNoModule;
    std::int64_t first_column = 0;  // of y
    std::int64_t out_features = 0;
    bool has_bias = false;
  };
  enum class Biases : std::uint8_t { no, yes };

  /// Appends a weight and its bias, which may be null.
  void add(weights::LinearWeight weight, const WeightVector* bias);
  /// Offers modules to adapters. Each has its columns in y after those of the module before it.
  void offer(const WeightLoader& loader, std::vector<AdapterModule> modules);
  /// Computes the products of the base's weights.
  void multiply(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y, Accumulate accumulate,
                Biases biases) const;
  void adapt(ForwardPass& pass, const BatchAdapters& adapters, const Rows& x, std::int64_t num_rows, float* y,
             Accumulate accumulate) const;
  /// Adds the changes of one site to rows whose y cannot serve as the base's products.
  void adapt_with_factors(ForwardPass& pass, const AdapterRows& rows, const Site& site, const ModuleWeights& change,
                          const Rows& x, float* y) const;
  void replace(ForwardPass& pass, const AdapterRows& rows, const Site& site, const kernels::WeightMatrix& weight,
               const Rows& x, float* y) const;
  Rows rows_from(const Rows& x, std::int64_t row) const;

  std::vector<Part> parts_;
  std::vector<Site> sites_;
  // Modules that LinearInputs sees; empty for a tied head or a weight derived other than by transposing.
  std::vector<LinearModule> modules_;
  std::vector<std::shared_ptr<const void>> memory_;  // own the weights that do not lie in the source
  // Type of all weights; float32 if types differ or a weight is quantised or has scales.
  DType narrow_type_ = DType::f32;
  std::int64_t in_features_ = 0;
  std::int64_t out_features_ = 0;
};

}  // namespace pagoda::layers
