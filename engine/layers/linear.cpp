#include "engine/layers/linear.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace pagoda::layers {
namespace {

AdapterModule module_of(const WeightLoader& module, AdapterModule::Kind kind, const weights::LinearWeight& weight,
                        std::int64_t out_features, std::int64_t in_features, const WeightVector* bias) {
  return {.name = std::string(module.name()),
          .kind = kind,
          .in_features = in_features,
          .out_features = out_features,
          .row_width = 0,
          .weight = weight,
          .bias = bias == nullptr ? nullptr : bias->data,
          .bias_dtype = bias == nullptr ? DType::f32 : bias->dtype,
          .has_bias = bias != nullptr};
}

}  // namespace

Linear::Linear(const WeightLoader& loader, std::span<const Projection> projections, std::int64_t in_features, bool bias,
               AdapterModule::Kind kind)
    : in_features_(in_features) {
  std::optional<DType> bias_dtype;
  std::vector<AdapterModule> offered;
  for (const auto& [name, out_features] : projections) {
    const auto module = loader / name;
    auto weight = module.linear(out_features, in_features);
    WeightVector vector;
    if (bias) vector = module.vector("bias", out_features);
    if (bias && bias_dtype.value_or(vector.dtype) != vector.dtype) {
      module.reject("its bias and the biases of the projections beside it must have one dtype");
    }
    if (bias) bias_dtype = vector.dtype;
    offered.push_back(module_of(module, kind, weight, out_features, in_features, bias ? &vector : nullptr));
    add(std::move(weight), bias ? &vector : nullptr);
    modules_.push_back({.name = std::string(module.name()), .out_features = out_features});
    out_features_ += out_features;
  }
  offer(loader, std::move(offered));
}

Linear Linear::tied(const WeightLoader& module, const WeightLoader& other, std::int64_t out_features,
                    std::int64_t in_features) {
  Linear linear;
  linear.in_features_ = in_features;
  auto weight = module.tied_linear(other.full_name("weight"), out_features, in_features);
  auto offered = module_of(module, AdapterModule::Kind::head, weight, out_features, in_features, nullptr);
  linear.add(std::move(weight), nullptr);
  linear.out_features_ = out_features;
  linear.offer(module, {std::move(offered)});
  return linear;
}

Linear Linear::derived(const WeightLoader& module, const weights::DerivedWeight& weight, bool bias) {
  Linear linear;
  linear.in_features_ = weight.columns;
  auto derived = module.derived_linear(weight);
  WeightVector vector;
  if (bias) vector = module.vector("bias", weight.rows);
  auto offered =
      module_of(module, AdapterModule::Kind::linear, derived, weight.rows, weight.columns, bias ? &vector : nullptr);
  linear.add(std::move(derived), bias ? &vector : nullptr);
  linear.out_features_ = weight.rows;
  if (weight.is_transposed) {
    linear.offer(module, {std::move(offered)});
    linear.modules_.push_back({.name = std::string(module.name()), .out_features = weight.rows, .transposed = true});
  }
  return linear;
}

bool Linear::Part::takes(const weights::LinearWeight& weight) const {
  if (weight.quantized == nullptr) {
    const auto has_scales_of = [](const kernels::WeightMatrix& matrix) {
      return matrix.scales == nullptr ? 0 : matrix.scale_columns;
    };
    return quantized.empty() && has_scales_of(plain.front()) == has_scales_of(weight.plain);
  }
  const kernels::QuantizedMatrix& matrix = weight.quantized->matrix;
  return plain.empty() && quantized.front().format == matrix.format && quantized.front().order == matrix.order;
}

void Linear::add(weights::LinearWeight weight, const WeightVector* bias) {
  const bool is_plain = weight.quantized == nullptr && weight.plain.scales == nullptr;
  const DType type = is_plain ? weight.plain.dtype : DType::f32;
  narrow_type_ = parts_.empty() || type == narrow_type_ ? type : DType::f32;
  if (parts_.empty() || !parts_.back().takes(weight)) {
    parts_.emplace_back();
    parts_.back().first_feature = out_features_;
  }
  Part& part = parts_.back();
  if (bias != nullptr) {
    part.biases.push_back(bias->data);
    part.bias_dtype = bias->dtype;
  }
  if (weight.quantized != nullptr) {
    part.quantized.push_back(weight.quantized->matrix);
    memory_.push_back(std::move(weight.quantized));
  } else {
    part.plain.push_back(weight.plain);
    if (weight.memory != nullptr) memory_.push_back(std::move(weight.memory));
  }
}

void Linear::operator()(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y,
                        Accumulate accumulate) const {
  pass.show_input(modules_, x, num_rows, in_features_);
  multiply(pass, x, num_rows, y, accumulate, Biases::yes);
  if (pass.batch().adapters != nullptr) adapt(pass, *pass.batch().adapters, x, num_rows, y, accumulate);
}

void Linear::multiply(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y, Accumulate accumulate,
                      Biases with) const {
  for (const Part& part : parts_) {
    const std::span<const void* const> biases =
        with == Biases::yes ? std::span<const void* const>(part.biases) : std::span<const void* const>();
    if (!part.quantized.empty()) {
      pass.run(&kernels::Ops::quantized_linear, {.x = x.floats,
                                                 .num_tokens = num_rows,
                                                 .in = in_features_,
                                                 .weights = part.quantized,
                                                 .biases = biases,
                                                 .bias_dtype = part.bias_dtype,
                                                 .out = y + part.first_feature,
                                                 .out_stride = out_features_,
                                                 .accumulate = accumulate == Accumulate::yes});
    } else {
      pass.run(&kernels::Ops::linear, {.x = x.floats,
                                       .narrow_x = x.narrow,
                                       .num_tokens = num_rows,
                                       .in = in_features_,
                                       .weights = part.plain,
                                       .biases = biases,
                                       .bias_dtype = part.bias_dtype,
                                       .out = y + part.first_feature,
                                       .out_stride = out_features_,
                                       .accumulate = accumulate == Accumulate::yes});
    }
  }
}

void Linear::offer(const WeightLoader& loader, std::vector<AdapterModule> modules) {
  std::int64_t first_column = 0;
  for (AdapterModule& module : modules) {
    module.row_width = out_features_;
    const Site site{.first_column = first_column, .out_features = module.out_features, .has_bias = module.has_bias};
    first_column += module.out_features;
    sites_.push_back(site);
    sites_.back().module = loader.modules()->add(std::move(module));
  }
}

Rows Linear::rows_from(const Rows& x, std::int64_t row) const {
  Rows rows = x;
  if (x.floats != nullptr) rows.floats += row * in_features_;
  if (x.narrow) {
    const std::int64_t bytes = row * in_features_ * static_cast<std::int64_t>(size_of(x.narrow.dtype));
    rows.narrow.data = static_cast<std::byte*>(x.narrow.data) + bytes;
  }
  return rows;
}

void Linear::adapt(ForwardPass& pass, const BatchAdapters& adapters, const Rows& x, std::int64_t num_rows, float* y,
                   Accumulate accumulate) const {
  std::vector<kernels::LoraItem> items;
  for (const AdapterRows& rows : adapters) {
    for (const Site& site : sites_) {
      const ModuleWeights* change = rows.adapter->change_of(site.module);
      if (change == nullptr) continue;
      if (change->weight.data != nullptr) {
        replace(pass, rows, site, change->weight, x, y);
      } else if (change->factors != nullptr && (accumulate == Accumulate::yes || site.has_bias)) {
        adapt_with_factors(pass, rows, site, *change, x, y);
      } else {
        items.push_back(change->item(rows.first_row, rows.num_rows, site.first_column, site.out_features));
      }
    }
  }
  if (items.empty()) return;
  pass.run(&kernels::Ops::lora, {.x = x.floats,
                                 .narrow_x = x.narrow,
                                 .num_tokens = num_rows,
                                 .in = in_features_,
                                 .items = items,
                                 .out = y,
                                 .out_stride = out_features_});
}

void Linear::adapt_with_factors(ForwardPass& pass, const AdapterRows& rows, const Site& site,
                                const ModuleWeights& change, const Rows& x, float* y) const {
  float* work = rows.adapter->work;
  for (std::int64_t done = 0; done < rows.num_rows; done += AdapterWeights::kWorkRows) {
    const std::int64_t first_row = rows.first_row + done;
    const std::int64_t count = std::min(AdapterWeights::kWorkRows, rows.num_rows - done);
    const Rows some = rows_from(x, first_row);
    multiply(pass, some, count, work, Accumulate::no, Biases::no);
    kernels::LoraItem item = change.item(0, count, site.first_column, site.out_features);
    item.base = work + site.first_column;
    item.base_stride = out_features_;
    pass.run(&kernels::Ops::lora, {.x = some.floats,
                                   .narrow_x = some.narrow,
                                   .num_tokens = count,
                                   .in = in_features_,
                                   .items = {&item, 1},
                                   .out = y + first_row * out_features_,
                                   .out_stride = out_features_});
  }
}

void Linear::replace(ForwardPass& pass, const AdapterRows& rows, const Site& site, const kernels::WeightMatrix& weight,
                     const Rows& x, float* y) const {
  const Rows some = rows_from(x, rows.first_row);
  pass.run(&kernels::Ops::linear, {.x = some.floats,
                                   .narrow_x = some.narrow,
                                   .num_tokens = rows.num_rows,
                                   .in = in_features_,
                                   .weights = {&weight, 1},
                                   .biases = {},
                                   .out = y + rows.first_row * out_features_ + site.first_column,
                                   .out_stride = out_features_});
}

}  // namespace pagoda::layers
