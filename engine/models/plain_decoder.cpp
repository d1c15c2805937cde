#include "engine/models/plain_decoder.hpp"

#include <utility>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

class PlainDecoder final : public Model {
 public:
  PlainDecoder(std::shared_ptr<kernels::Device> device, Activations activations, PlainDecoderWeights weights)
      : device_(std::move(device)), activations_(std::move(activations)), weights_(std::move(weights)) {
    PAGODA_ASSERT(weights_.post_norm || weights_.final_norm, "a pre-norm decoder ends with a norm");
  }

  Status forward(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache,
                 float* logits) override {
    if (auto status = activations_.admit(batch); !status) return status;
    ForwardPass pass(device_->ops(), stream, batch, cache);
    embed(pass);
    float* last = weights_.post_norm ? run_post_norm(pass) : run_pre_norm(pass);
    if (weights_.project_out) {
      (*weights_.project_out)(pass, last, pass.num_tokens(), activations_.attention);
      last = activations_.attention;
    }
    last_hidden_ = last;
    weights_.head(pass, activations_, last, logits);
    return pass.status();
  }

  Status more_logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits) override {
    const layers::ForwardBatch batch{.logit_rows = rows, .num_logit_rows = num_rows};
    if (auto status = activations_.admit(batch); !status) return status;
    const layers::KvCache no_cache;
    ForwardPass pass(device_->ops(), stream, batch, no_cache);
    weights_.head(pass, activations_, last_hidden_, logits);
    return pass.status();
  }

 private:
  /// Sums of token and position embeddings go to the residual stream.
  void embed(ForwardPass& pass) const {
    const auto& batch = pass.batch();
    float* residual = activations_.residual;
    if (weights_.project_in) {
      weights_.tokens(pass, batch.token_ids, activations_.attention);
      (*weights_.project_in)(pass, activations_.attention, pass.num_tokens(), residual);
    } else {
      weights_.tokens(pass, batch.token_ids, residual);
    }
    weights_.positions.add(pass, batch.positions, residual);
  }

  float* run_pre_norm(ForwardPass& pass) const {
    const auto n = pass.num_tokens();
    float* hidden = activations_.hidden;
    float* residual = activations_.residual;
    for (const auto& layer : weights_.layers) {
      layer.attention_norm(pass, residual, n, hidden);
      layer.attention(pass, activations_, hidden, residual, Into::add);
      layer.mlp_norm(pass, residual, n, hidden);
      layer.mlp(pass, activations_, hidden, residual, Into::add);
    }
    (*weights_.final_norm)(pass, residual, n, hidden);
    return hidden;
  }

  float* run_post_norm(ForwardPass& pass) const {
    const auto n = pass.num_tokens();
    float* hidden = activations_.hidden;
    float* residual = activations_.residual;
    for (const auto& layer : weights_.layers) {
      layer.attention(pass, activations_, residual, hidden, Into::set);
      layer.attention_norm.add_and_norm(pass, hidden, residual, n, residual);
      layer.mlp(pass, activations_, residual, hidden, Into::set);
      layer.mlp_norm.add_and_norm(pass, hidden, residual, n, residual);
    }
    if (weights_.final_norm) (*weights_.final_norm)(pass, residual, n, residual);
    return residual;
  }

  std::shared_ptr<kernels::Device> device_;
  Activations activations_;
  PlainDecoderWeights weights_;
  const float* last_hidden_ = nullptr;  ///< of the last run, before the head
};

}  // namespace

Result<std::unique_ptr<Model>> create_plain_decoder(const ModelParts& parts, PlainDecoderWeights weights) {
  auto activations = Activations::create(*parts.device, parts.config, parts.limits);
  if (!activations) return fail(std::move(activations.error()));
  return std::make_unique<PlainDecoder>(parts.device, std::move(*activations), std::move(weights));
}

}  // namespace pagoda::models
