#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"

namespace pagoda::layers {

/// Returns the activation that Hugging Face calls `name` in hidden_act; nothing when no op computes it.
std::optional<kernels::Activation> activation_of(std::string_view name);

/// The part of a decoder's layer that follows attention and works on each token alone. A family chooses its kind.
class Mlp {
 public:
  virtual ~Mlp() = default;
  /// See Linear::input_type.
  virtual DType input_type(const ForwardPass& pass) const = 0;
  /// See ActivationShape.
  virtual std::vector<std::int64_t> work_widths() const = 0;
  /// in, out: [num_tokens, hidden_size]. With Accumulate::no, `out` may be the memory of `in`.
  virtual void run(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
                   Accumulate accumulate) const = 0;
};

/// down(act(gate(x)) * up(x)): the SwiGLU of Llama and its relatives.
class GatedMlp final : public Mlp {
 public:
  /// An output row of `gate_up` holds the gate and then the values.
  GatedMlp(Linear gate_up, kernels::Activation activation, Linear down);

  DType input_type(const ForwardPass& pass) const override { return gate_up_.input_type(pass); }
  std::vector<std::int64_t> work_widths() const override;
  void run(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
           Accumulate accumulate) const override;

 private:
  /// Returns the widths of the working rows: gate and values in one row; the activated values.
  std::array<std::int64_t, 2> widths() const { return {gate_up_.out_features(), down_.in_features()}; }

  Linear gate_up_;
  kernels::Activation activation_;
  Linear down_;
};

/// down(act(up(x))): the MLP of GPT-2 and OPT.
class PlainMlp final : public Mlp {
 public:
  PlainMlp(Linear up, kernels::Activation activation, Linear down);

  DType input_type(const ForwardPass& pass) const override { return up_.input_type(pass); }
  std::vector<std::int64_t> work_widths() const override { return {up_.out_features()}; }
  void run(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
           Accumulate accumulate) const override;

 private:
  Linear up_;
  kernels::Activation activation_;
  Linear down_;
};

}  // namespace pagoda::layers
