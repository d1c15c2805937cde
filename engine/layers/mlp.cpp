#include "engine/layers/mlp.hpp"

#include <utility>

namespace pagoda::layers {

std::optional<kernels::Activation> activation_of(std::string_view name) {
  using kernels::Activation;
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  return std::nullopt;
}

GatedMlp::GatedMlp(Linear gate_up, kernels::Activation activation, Linear down)
    : gate_up_(std::move(gate_up)), activation_(activation), down_(std::move(down)) {}

void GatedMlp::operator()(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
                          Into into) const {
  gate_up_(pass, in, pass.num_tokens(), activations.gate_up);
  const Rows activated(activations.activated, down_.input_type(pass));
  pass.run(&kernels::Ops::activation, {.x = activations.gate_up,
                                       .num_tokens = pass.num_tokens(),
                                       .width = gate_up_.out_features() / 2,
                                       .activation = activation_,
                                       .gated = true,
                                       .out = activated.floats,
                                       .narrow_out = activated.narrow});
  down_(pass, activated, pass.num_tokens(), out, into);
}

Mlp::Mlp(Linear up, kernels::Activation activation, Linear down)
    : up_(std::move(up)), activation_(activation), down_(std::move(down)) {}

void Mlp::operator()(ForwardPass& pass, const Activations& activations, const Rows& in, float* out, Into into) const {
  up_(pass, in, pass.num_tokens(), activations.gate_up);
  pass.run(&kernels::Ops::activation, {.x = activations.gate_up,
                                       .num_tokens = pass.num_tokens(),
                                       .width = up_.out_features(),
                                       .activation = activation_,
                                       .gated = false,
                                       .out = activations.gate_up});
  down_(pass, activations.gate_up, pass.num_tokens(), out, into);
}

}  // namespace pagoda::layers
