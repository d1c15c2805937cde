#include <memory>
#include <utility>

#include "engine/layers/weight_loader.hpp"
#include "engine/models/plain_decoder.hpp"
#include "engine/models/registry.hpp"
#include "kernels/cpu/cpu_memory.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

/// Loads projections that GPT-2 stores as [in, out], which the ops want as [out, in]: the only weights of all families
/// that need memory of their own.
class TransposedLoader {
 public:
  explicit TransposedLoader(Status& status) : status_(status) {}

  Linear linear(const WeightLoader& module, std::int64_t in, std::int64_t out) {
    const auto stored = module.host_matrix("weight", in, out);
    const auto bias = module.vector("bias", out);
    if (!status_) return {};
    auto turned = size_of(stored.dtype) == 4 ? transpose<std::uint32_t>(stored) : transpose<std::uint16_t>(stored);
    if (!turned) {
      status_ = fail(std::move(turned.error()));
      return {};
    }
    auto memory = std::make_shared<kernels::Buffer>(std::move(*turned));
    return {module, {{memory->data(), stored.dtype, out, in}, memory}, bias};
  }

 private:
  template <class Element>
  Result<kernels::Buffer> transpose(const kernels::WeightMatrix& stored) {
    auto memory =
        kernels::allocate_cpu_memory(static_cast<std::size_t>(stored.rows * stored.columns) * sizeof(Element));
    if (!memory) return memory;
    const auto* from = static_cast<const Element*>(stored.data);
    auto* to = memory->as<Element>();
    for (std::int64_t row = 0; row < stored.rows; ++row) {
      for (std::int64_t column = 0; column < stored.columns; ++column) {
        to[column * stored.rows + row] = from[row * stored.columns + column];
      }
    }
    return memory;
  }

  Status& status_;
};

PlainDecoderLayer load_layer(const WeightLoader& layer, TransposedLoader& transposed, const ModelConfig& config,
                             std::int64_t index, kernels::Activation activation) {
  const auto hidden = config.hidden_size;
  return {.attention_norm = {layer / "ln_1", hidden, config.norm_eps},
          .attention = {attention_shape(config, index, {}),
                        {.parts = {transposed.linear(layer / "attn" / "c_attn", hidden, 3 * hidden)}},
                        transposed.linear(layer / "attn" / "c_proj", hidden, hidden)},
          .mlp_norm = {layer / "ln_2", hidden, config.norm_eps},
          .mlp = {transposed.linear(layer / "mlp" / "c_fc", hidden, config.intermediate_size), activation,
                  transposed.linear(layer / "mlp" / "c_proj", config.intermediate_size, hidden)}};
}

}  // namespace

/// GPT-2 (Radford et al. 2019): LayerNorm before each part, learned positions, GELU.
Result<std::unique_ptr<Model>> create_gpt2(const ModelParts& parts) {
  const auto& config = parts.config;
  const auto activation = activation_of(config.hidden_act);
  if (!activation)
    return fail(ErrorCode::bad_config, "activation_function: there is no such one", "activation_function");
  Status status;
  const WeightLoader root(parts.weights, status);
  // The first published files leave out the outer module's name.
  const auto model = root.contains("transformer.wte.weight") ? root / "transformer" : root;
  TransposedLoader transposed(status);

  PlainDecoderWeights weights;
  weights.tokens = Embedding(model / "wte", config.vocab_size, config.hidden_size);
  weights.positions = Embedding(model / "wpe", config.max_position_embeddings, config.hidden_size);
  for (std::int64_t i = 0; i < config.num_layers && status; ++i) {
    weights.layers.push_back(load_layer(model / "h" / i, transposed, config, i, *activation));
  }
  weights.final_norm = LayerNorm(model / "ln_f", config.hidden_size, config.norm_eps);
  weights.head =
      LmHead(config.tie_word_embeddings ? Linear(root / "lm_head", {weights.tokens.table()})
                                        : Linear(root, {"lm_head", config.vocab_size}, config.hidden_size, false));
  if (!status) return fail(std::move(status.error()));
  return create_plain_decoder(parts, std::move(weights));
}

}  // namespace pagoda::models
