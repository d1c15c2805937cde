#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"

namespace pagoda::layers {

/// The activation that Hugging Face calls `name` in hidden_act; nothing when there is no op for it.
std::optional<kernels::Activation> activation_of(std::string_view name);

/// down(act(gate(x)) * up(x)): the SwiGLU of Llama and its relatives.
class GatedMlp {
 public:
  /// `gate_up` gives the gate and then the values side by side in a row.
  GatedMlp(Linear gate_up, kernels::Activation activation, Linear down);

  /// See Linear::input_type.
  DType input_type(const ForwardPass& pass) const { return gate_up_.input_type(pass); }

  /// in, out: [num_tokens, hidden_size]; out may be in, if it is set.
  void operator()(ForwardPass& pass, const Activations& activations, const Rows& in, float* out, Into into) const;

 private:
  Linear gate_up_;
  kernels::Activation activation_;
  Linear down_;
};

/// down(act(up(x))): the MLP of GPT-2 and OPT.
class Mlp {
 public:
  Mlp(Linear up, kernels::Activation activation, Linear down);

  /// in, out: [num_tokens, hidden_size]; out may be in, if it is set.
  void operator()(ForwardPass& pass, const Activations& activations, const Rows& in, float* out, Into into) const;

 private:
  Linear up_;
  kernels::Activation activation_;
  Linear down_;
};

}  // namespace pagoda::layers
