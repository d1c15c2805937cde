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

std::vector<std::int64_t> GatedMlp::work_widths() const {
  const auto all = widths();
  return {all.begin(), all.end()};
}

void GatedMlp::run(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
                   Accumulate accumulate) const {
  const auto [gate_up_rows, activated_rows] = activations.work(widths());
  gate_up_(pass, in, pass.num_tokens(), gate_up_rows);
  const Rows activated(activated_rows, down_.input_type(pass));
  pass.run(&kernels::Ops::activation, {.x = gate_up_rows,
                                       .num_tokens = pass.num_tokens(),
                                       .width = down_.in_features(),
                                       .activation = activation_,
                                       .gated = true,
                                       .out = activated.floats,
                                       .narrow_out = activated.narrow});
  down_.sum_over_ranks(pass, activated, pass.num_tokens(), out, accumulate);
}

PlainMlp::PlainMlp(Linear up, kernels::Activation activation, Linear down)
    : up_(std::move(up)), activation_(activation), down_(std::move(down)) {}

void PlainMlp::run(ForwardPass& pass, const Activations& activations, const Rows& in, float* out,
                   Accumulate accumulate) const {
  const auto [rows] = activations.work(std::array{up_.out_features()});
  up_(pass, in, pass.num_tokens(), rows);
  pass.run(&kernels::Ops::activation, {.x = rows,
                                       .num_tokens = pass.num_tokens(),
                                       .width = up_.out_features(),
                                       .activation = activation_,
                                       .gated = false,
                                       .out = rows});
  down_.sum_over_ranks(pass, rows, pass.num_tokens(), out, accumulate);
}

}  // namespace pagoda::layers
