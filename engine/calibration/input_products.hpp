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

/// The sums over all rows x that go into a linear layer of x^T x [in_features, in_features], float32: they say how much
/// an error of one weight changes the layer's outputs, and which other weights can make up for it. Of all layers
/// together they may be larger than memory, so a model is run once to see its layers, and then once for each set of
/// them that is collected.
class InputProducts final : public layers::LinearInputs {
 public:
  /// `device`: one that computes on the host.
  explicit InputProducts(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// The inputs that have been seen, in the order in which the model computes them.
  const std::vector<SharedInput>& inputs() const { return inputs_; }

  /// From now on the products of these inputs [first, last) are added up, from zero on. Errors: out_of_memory.
  Status collect(std::size_t first, std::size_t last);
  /// Hands over the products of an input that is collected.
  kernels::Buffer take(std::size_t input) { return std::move(products_.at(input - first_)); }

  Status see(kernels::Stream& stream, std::span<const layers::LinearModule> modules, const layers::Rows& x,
             std::int64_t num_rows, std::int64_t in_features) override;

 private:
  Status transpose(kernels::Stream& stream, const layers::Rows& x, std::int64_t num_rows, std::int64_t in_features);

  std::shared_ptr<kernels::Device> device_;
  std::vector<SharedInput> inputs_;
  std::map<std::string, std::size_t, std::less<>> places_;  // of inputs, by their first module
  std::size_t first_ = 0;
  std::vector<kernels::Buffer> products_;
  kernels::Buffer rows_;        // of 16 bits, as float32
  kernels::Buffer transposed_;  // [in_features, num_rows]
};

}  // namespace pagoda::calibration
