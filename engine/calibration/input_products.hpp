#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/layers/linear_inputs.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// Linear layers that share their input.
struct SharedInput {
  std::vector<layers::LinearModule> modules;
  std::int64_t in_features = 0;

  std::int64_t product_bytes() const { return in_features * in_features * std::int64_t{sizeof(float)}; }
};

/// Sums x^T x [in_features, in_features], float32, over all rows x that go into a linear layer. The sums show how much
/// an error of one weight changes the layer's outputs, and which other weights can compensate it. Those of all layers
/// together may be larger than memory, so a model is run once to find its layers, and then once for each set of layers
/// whose products are collected.
class InputProducts final : public layers::LinearInputs {
 public:
  /// `device` must compute on the host.
  explicit InputProducts(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// Returns the inputs that have been seen, in the order in which the model computes them.
  const std::vector<SharedInput>& inputs() const { return inputs_; }

  /// Begins to sum the products of the inputs [first, last) from zero, and drops earlier products. Errors:
  /// out_of_memory.
  Status collect(std::size_t first, std::size_t last);
  /// Moves out the products of an input that is collected.
  kernels::Buffer take(std::size_t input) { return std::move(products_.at(input - first_)); }

  Status see(kernels::Stream& stream, std::span<const layers::LinearModule> modules, const layers::Rows& x,
             std::int64_t num_rows, std::int64_t in_features) override;

 private:
  Status transpose(kernels::Stream& stream, const layers::Rows& x, std::int64_t num_rows, std::int64_t in_features);

  std::shared_ptr<kernels::Device> device_;
  std::vector<SharedInput> inputs_;
  std::map<std::string, std::size_t, std::less<>> places_;  // index of each input, by its first module
  std::size_t first_ = 0;
  std::vector<kernels::Buffer> products_;
  kernels::Buffer rows_;        // rows of 16 bits, as float32
  kernels::Buffer transposed_;  // [in_features, num_rows]
};

}  // namespace pagoda::calibration
