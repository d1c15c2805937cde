// EAGLE-3 (Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
// Test").

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "engine/layers/device_array.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/models/decoder.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/draft_head.hpp"
#include "engine/models/families.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

constexpr auto kNumFeatureLayers = static_cast<std::int64_t>(DraftHeadFacts::kNumFeatureLayers);

/// The values of a head's config.
struct Eagle3Config {
  DecoderConfig decoder;
  DraftHeadFacts facts;
  bool attention_bias = false;
  bool has_head_norms = false;        ///< whether queries and keys have norms, as in Qwen3
  bool norm_before_fc = false;        ///< whether the joined rows of the model are normed
  bool norm_of_each_layer = false;    ///< whether the rows of each layer of the model are normed
  bool norm_before_residual = false;  ///< whether the residual stream begins with the normed features
  bool norm_output = false;           ///< whether a draft's features are the normed last row

  std::int64_t joined_width() const { return kNumFeatureLayers * facts.target_hidden_size; }
};

/// The weights of a head.
struct Eagle3Weights {
  std::optional<Embedding> embedding;  ///< absent: that of the model
  std::optional<RmsNorm> fc_input_norm;
  std::vector<RmsNorm> layer_norms;  ///< empty, or one for each feature layer
  Linear fc;
  RmsNorm input_norm;
  RmsNorm hidden_norm;
  std::optional<Attention> attention;
  RmsNorm mlp_norm;
  std::unique_ptr<Mlp> mlp;
  RmsNorm norm;
  Linear head;
};

/// One layer whose attention reads the embedding of a token and the features of the token before it side by side.
class Eagle3 final : public DraftHead, private ResidualObserver {
 public:
  Eagle3(Eagle3Config config, Eagle3Weights weights, std::shared_ptr<const AdapterModules> modules)
      : config_(std::move(config)), weights_(std::move(weights)), modules_(std::move(modules)) {
    const auto widths = config_.decoder.attention.work_widths();
    shape_ = {.hidden_size = hidden(), .work_widths = {{widths.begin(), widths.end()}, weights_.mlp->work_widths()}};
  }

  ModelMemory memory(const ModelLimits& limits, bool narrow_rows) const override {
    const std::int64_t floats = stack_floats(limits) + joined_floats(limits) + feature_floats(limits) +
                                draft_logit_floats(limits) + draft_vocab() + 1;
    const std::int64_t indices = (1 + 2 + kNumFeatureLayers) * limits.max_tokens + vocab();
    return {.activation_bytes = Activations::bytes(shape_, limits, narrow_rows) +
                                (floats + indices) * static_cast<std::int64_t>(sizeof(float)),
            .position_bytes = PositionTables::bytes(config_.decoder.positions.front(), limits.max_model_len)};
  }

  Status allocate(std::shared_ptr<kernels::Device> device, const ModelLimits& limits) override {
    PAGODA_ASSERT(device_ == nullptr, "a model is allocated once");
    device_ = std::move(device);
    limits_ = limits;
    auto activations = Activations::create(*device_, shape_, limits);
    if (!activations) return fail(std::move(activations.error()));
    activations_ = std::move(*activations);
    auto tables = PositionTables::create(*device_, config_.decoder.positions.front(), limits.max_model_len);
    if (!tables) return fail(std::move(tables.error()));
    positions_.push_back(std::move(*tables));
    Status status;
    const auto take = [&](kernels::Buffer& buffer, std::int64_t floats) {
      if (!status) return;
      auto memory = device_->allocate(static_cast<std::size_t>(floats) * sizeof(float), kernels::MemoryKind::device);
      if (memory) {
        buffer = std::move(*memory);
      } else {
        status = fail(std::move(memory.error()));
      }
    };
    take(stack_, stack_floats(limits));
    take(joined_, joined_floats(limits));
    take(features_, feature_floats(limits));
    if (status) status = make_joined_rows(1, singles_);
    if (status) status = make_joined_rows(2, pairs_);
    if (status) status = make_joined_rows(kNumFeatureLayers, triples_);
    return status;
  }

  void connect(kernels::Communicator&) override { PAGODA_ASSERT(false, "a draft head has no ranks"); }

  Status attach(const Model& target, const KvCache& cache, const DraftHeadFacts& facts) override {
    embedding_ = weights_.embedding ? &*weights_.embedding : &target.token_embedding();
    if (embedding_->width() != hidden()) {
      return fail(ErrorCode::bad_config,
                  "the embedding of the model has rows of " + std::to_string(embedding_->width()) +
                      " elements, and the draft head has " + std::to_string(hidden()),
                  "speculative_config");
    }
    layout_ = {.hidden_size = hidden(), .block_size = cache.block_size};
    PAGODA_ASSERT(cache.block_bytes % layout_.half_bytes() == 0, "blocks are counted in halves of rows");
    if (cache.num_blocks * (cache.block_bytes / layout_.half_bytes()) > std::numeric_limits<std::int32_t>::max()) {
      return fail(ErrorCode::bad_config, "a draft head needs a smaller KV cache: features have 32-bit indices",
                  "kv_cache_memory");
    }
    cache_ = cache;
    feature_layers_ = facts.feature_layers;
    PAGODA_ASSERT(std::ssize(feature_layers_) == kNumFeatureLayers, "the plan chooses the layers");
    if (draft_vocab() == vocab() && facts.tokens.empty()) return {};
    return make_vocabulary(facts.tokens);
  }

  ResidualObserver& observer() override { return *this; }

  Status run(kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache) override {
    if (embedding_ == nullptr) return fail(ErrorCode::internal, "a draft head runs only beside its model");
    if (auto status = activations_.check_fits(batch); !status) return status;
    ForwardPass pass(device_->ops(), stream, batch, cache);
    const std::int64_t n = batch.num_tokens;
    auto* features = features_.as<float>();
    take_features(pass, features);
    float* embedded = stack_.as<float>();
    float* normed = embedded + limits_.max_tokens * hidden();
    (*embedding_)(pass, batch.token_ids, embedded);
    weights_.input_norm(pass, embedded, n, embedded);
    weights_.hidden_norm(pass, features, n, normed);
    join(pass, pairs_, 2, 0, n, hidden());
    float* residual = activations_.residual;
    pass.run(&kernels::Ops::copy, {.from = config_.norm_before_residual ? normed : features,
                                   .to = residual,
                                   .bytes = static_cast<std::size_t>(n * hidden()) * sizeof(float)});
    (*weights_.attention)(pass, activations_, positions_, joined_.as<float>(), residual, Accumulate::yes);
    const Rows mlp_input = activations_.normed(weights_.mlp->input_type(pass));
    weights_.mlp_norm(pass, residual, n, mlp_input);
    weights_.mlp->run(pass, activations_, mlp_input, residual, Accumulate::yes);
    weights_.norm(pass, residual, n, activations_.hidden);
    return pass.status();
  }

  Status logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits,
                const BatchAdapters*) override {
    if (num_rows == 0) return {};
    if (auto status = activations_.check_logit_rows(num_rows); !status) return status;
    const ForwardBatch no_batch;
    const KvCache no_cache;
    ForwardPass pass(device_->ops(), stream, no_batch, no_cache);
    gather(pass, rows, num_rows, activations_.logit_rows);
    if (rows_of_vocab_.data() == nullptr) {
      weights_.head(pass, activations_.logit_rows, num_rows, logits);
      return pass.status();
    }
    // The scores of a row, with -inf behind them, are spread over the model's vocabulary.
    auto* scores = draft_logits_.as<float>();
    weights_.head(pass, activations_.logit_rows, num_rows, scores);
    for (std::int64_t row = 0; row < num_rows; ++row) {
      pass.run(&kernels::Ops::copy, {.from = scores + row * draft_vocab(),
                                     .to = scores_of_row_.data(),
                                     .bytes = static_cast<std::size_t>(draft_vocab()) * sizeof(float)});
      pass.run(&kernels::Ops::gather_rows, {.x = scores_of_row_.as<float>(),
                                            .rows = rows_of_vocab_.as<std::int32_t>(),
                                            .num_rows = vocab(),
                                            .width = 1,
                                            .out = logits + row * vocab()});
    }
    return pass.status();
  }

  Status hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* out) override {
    const ForwardBatch no_batch;
    const KvCache no_cache;
    ForwardPass pass(device_->ops(), stream, no_batch, no_cache);
    gather(pass, rows, num_rows, out);
    return pass.status();
  }
  std::int64_t hidden_width() const override { return hidden(); }
  const Embedding& token_embedding() const override { return *embedding_; }
  const AdapterModules& adapter_modules() const override { return *modules_; }

 private:
  std::int64_t hidden() const { return config_.decoder.hidden_size; }
  std::int64_t vocab() const { return config_.decoder.vocab_size; }
  std::int64_t draft_vocab() const { return config_.facts.draft_vocab_size; }
  std::int64_t stack_floats(const ModelLimits& limits) const {
    return limits.max_tokens * std::max(config_.joined_width(), 2 * hidden());
  }
  std::int64_t joined_floats(const ModelLimits& limits) const {
    return std::max(limits.max_tokens * 2 * hidden(), config_.joined_width());
  }
  std::int64_t feature_floats(const ModelLimits& limits) const { return limits.max_tokens * hidden(); }
  std::int64_t draft_logit_floats(const ModelLimits& limits) const { return limits.max_logit_rows * draft_vocab(); }

  /// Fills `indices` with the rows of a stack of `count` matrices [max_tokens, width] that stand side by side: row t of
  /// the first matrix, row t of the second, and so on.
  Status make_joined_rows(std::int64_t count, kernels::Buffer& indices) {
    std::vector<std::int32_t> rows;
    rows.reserve(static_cast<std::size_t>(limits_.max_tokens * count));
    for (std::int32_t t = 0; t < limits_.max_tokens; ++t) {
      for (std::int32_t k = 0; k < count; ++k) rows.push_back(t + k * limits_.max_tokens);
    }
    return bring(rows, indices);
  }

  template <class T>
  Status bring(const std::vector<T>& values, kernels::Buffer& buffer) {
    auto memory = copy_to_device(*device_, std::as_bytes(std::span(values)));
    if (!memory) return fail(std::move(memory.error()));
    buffer = std::move(*memory);
    return {};
  }

  /// Makes the memory of logits of draft tokens, and the row of these that each token of the vocabulary has. Tokens
  /// that are not drafted have the row behind them.
  Status make_vocabulary(const std::vector<TokenId>& tokens) {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(vocab()), static_cast<std::int32_t>(draft_vocab()));
    for (std::int32_t i = 0; i < draft_vocab(); ++i) {
      rows[static_cast<std::size_t>(tokens.empty() ? i : tokens[static_cast<std::size_t>(i)])] = i;
    }
    const auto bytes = static_cast<std::size_t>(draft_logit_floats(limits_)) * sizeof(float);
    auto memory = device_->allocate(bytes, kernels::MemoryKind::device);
    if (!memory) return fail(std::move(memory.error()));
    draft_logits_ = std::move(*memory);
    Status status = bring(rows, rows_of_vocab_);
    if (!status) return status;
    return bring(
        std::vector<float>(static_cast<std::size_t>(draft_vocab() + 1), -std::numeric_limits<float>::infinity()),
        scores_of_row_);
  }

  void take_features(ForwardPass& pass, float* features) const {
    const ForwardBatch& batch = pass.batch();
    if (batch.continues_last_run) {
      gather_rows(pass, config_.norm_output ? activations_.hidden : activations_.residual, batch.feature_rows,
                  batch.num_tokens, hidden(), features);
    } else {
      gather_rows(pass, reinterpret_cast<const float*>(features_in_cache()), batch.feature_rows, 2 * batch.num_tokens,
                  layout_.half_size(), features);
    }
  }

  /// Writes the rows [first, first + num_rows) of `count` matrices of stack_ side by side to joined_.
  void join(ForwardPass& pass, const kernels::Buffer& indices, std::int64_t count, std::int64_t first,
            std::int64_t num_rows, std::int64_t width) const {
    gather_rows(pass, stack_.as<float>(), indices.as<std::int32_t>() + first * count, num_rows * count, width,
                joined_.as<float>());
  }

  static void gather_rows(ForwardPass& pass, const float* x, const std::int32_t* rows, std::int64_t num_rows,
                          std::int64_t width, float* out) {
    pass.run(&kernels::Ops::gather_rows, {.x = x, .rows = rows, .num_rows = num_rows, .width = width, .out = out});
  }
  void gather(ForwardPass& pass, const std::int32_t* rows, std::int64_t num_rows, float* out) const {
    gather_rows(pass, activations_.hidden, rows, num_rows, hidden(), out);
  }

  Status see(kernels::Stream& stream, const ForwardBatch& batch, std::int64_t layer, const float* rows) override {
    PAGODA_ASSERT(embedding_ != nullptr, "the head is attached");
    const std::int64_t width = config_.facts.target_hidden_size;
    const ForwardBatch own{.num_tokens = batch.num_tokens};  // without adapters
    ForwardPass pass(device_->ops(), stream, own, cache_);
    for (std::size_t k = 0; k < feature_layers_.size(); ++k) {
      if (feature_layers_[k] != layer) continue;
      float* to = stack_.as<float>() + static_cast<std::int64_t>(k) * limits_.max_tokens * width;
      if (weights_.layer_norms.empty()) {
        // A kernel copies, since a device may record the model's run.
        gather_rows(pass, rows, singles_.as<std::int32_t>(), batch.num_tokens, width, to);
      } else {
        weights_.layer_norms[k](pass, rows, batch.num_tokens, to);
      }
    }
    if (feature_layers_.back() == layer) keep_features(pass, batch.slots_of(0));
    return pass.status();
  }

  /// Computes the features of the tokens from the rows in stack_, in pieces that fit joined_, and writes them to the KV
  /// blocks.
  void keep_features(ForwardPass& pass, const std::int64_t* slots) const {
    const std::int64_t n = pass.num_tokens();
    const std::int64_t piece = joined_floats(limits_) / config_.joined_width();
    auto* features = features_.as<float>();
    auto* joined = joined_.as<float>();
    for (std::int64_t first = 0; first < n; first += piece) {
      const std::int64_t count = std::min(piece, n - first);
      join(pass, triples_, kNumFeatureLayers, first, count, config_.facts.target_hidden_size);
      if (weights_.fc_input_norm) (*weights_.fc_input_norm)(pass, joined, count, joined);
      weights_.fc(pass, joined, count, features + first * hidden());
    }
    pass.run(&kernels::Ops::store_kv, {.key = features,
                                       .value = features + layout_.half_size(),
                                       .key_stride = hidden(),
                                       .value_stride = hidden(),
                                       .slot_mapping = slots,
                                       .num_tokens = n,
                                       .cache = {.base = features_in_cache(),
                                                 .block_bytes = cache_.block_bytes,
                                                 .num_blocks = cache_.num_blocks,
                                                 .block_size = cache_.block_size,
                                                 .num_kv_heads = 1,
                                                 .head_dim = layout_.half_size(),
                                                 .dtype = DType::f32}});
  }

  std::byte* features_in_cache() const { return cache_.base - layout_.bytes(); }

  Eagle3Config config_;
  Eagle3Weights weights_;
  std::shared_ptr<const AdapterModules> modules_;
  ActivationShape shape_;

  std::shared_ptr<kernels::Device> device_;  // set by allocate, like the fields below
  ModelLimits limits_;
  Activations activations_;
  std::vector<PositionTables> positions_;
  kernels::Buffer stack_;     // matrices [max_tokens, width] behind each other, which join() puts side by side
  kernels::Buffer joined_;    // [max_tokens, 2 * hidden_size], or fewer rows of joined_width()
  kernels::Buffer features_;  // [max_tokens, hidden_size]
  kernels::Buffer singles_;   // see make_joined_rows
  kernels::Buffer pairs_;
  kernels::Buffer triples_;

  const Embedding* embedding_ = nullptr;  // set by attach, like the fields below
  KvCache cache_;
  FeatureLayout layout_;
  std::vector<std::int64_t> feature_layers_;
  // Only with a vocabulary of its own:
  kernels::Buffer draft_logits_;   // [max_logit_rows, draft_vocab_size]
  kernels::Buffer scores_of_row_;  // [draft_vocab_size + 1], the last one -inf
  kernels::Buffer rows_of_vocab_;  // [vocab_size]: index of each token in scores_of_row_
};

/// Programs that train heads call the layer "midlayer" or "layers.0"; beside an embedding it is "model.layers.0".
WeightLoader layer_of(const WeightLoader& root) {
  if (root.contains("midlayer.hidden_norm.weight")) return root / "midlayer";
  return root.contains("layers.0.hidden_norm.weight") ? root / "layers" / 0 : root / "model" / "layers" / 0;
}

Result<std::unique_ptr<Model>> build(const Eagle3Config& config, const weights::WeightSource& source) {
  const DecoderConfig& decoder = config.decoder;
  DecoderConfig joined = decoder;  // of what attention reads
  joined.hidden_size *= 2;
  Status status;
  const WeightLoader root(source, status);
  const WeightLoader model = root / "model";
  const WeightLoader layer = layer_of(root);
  const WeightLoader attention = layer / "self_attn";
  Eagle3Weights weights;
  if (root.contains("model.embed_tokens.weight")) {
    weights.embedding = Embedding(model / "embed_tokens", decoder.vocab_size, decoder.hidden_size);
  }
  if (config.norm_before_fc) {
    weights.fc_input_norm = RmsNorm(root / "input_norm", config.joined_width(), decoder.norm_eps);
  }
  for (std::int64_t k = 0; config.norm_of_each_layer && k < kNumFeatureLayers; ++k) {
    weights.layer_norms.emplace_back(root / "fc_norm" / k, config.facts.target_hidden_size, decoder.norm_eps);
  }
  weights.fc = Linear(root, {"fc", decoder.hidden_size}, config.joined_width(), false);
  weights.input_norm = load_norm(layer / "input_layernorm", decoder);
  weights.hidden_norm = load_norm(layer / "hidden_norm", decoder);
  QkvProjection qkv = config.has_head_norms ? load_qkv_with_norms(attention, joined, config.attention_bias)
                                            : load_qkv(attention, joined, config.attention_bias);
  AttentionShape shape = decoder.attention_of(0);
  shape.first_position = 1;  // see DraftHead
  weights.attention.emplace(shape, decoder.kv_place(0), std::move(qkv),
                            load_attention_output(attention, decoder, config.attention_bias));
  weights.mlp_norm = load_norm(layer / "post_attention_layernorm", decoder);
  weights.mlp = load_gated_mlp(layer / "mlp", decoder);
  weights.norm = load_norm(root.contains("model.norm.weight") ? model / "norm" : root / "norm", decoder);
  weights.head =
      Linear(root, {"lm_head", config.facts.draft_vocab_size}, decoder.hidden_size, false, AdapterModule::Kind::head);
  if (!status) return fail(std::move(status.error()));
  return std::make_unique<Eagle3>(config, std::move(weights), root.modules());
}

void read_feature_layers(ConfigSource& config, DraftHeadFacts& facts) {
  constexpr const char* kLayers = "eagle_aux_hidden_state_layer_ids";
  if (!config.has(kLayers) || config.is_empty_list(kLayers)) return;
  facts.feature_layers.clear();
  for (const double layer : config.numbers(kLayers, kNumFeatureLayers, -1)) {
    facts.feature_layers.push_back(static_cast<std::int64_t>(layer));
    if (static_cast<double>(facts.feature_layers.back()) != layer) config.reject(kLayers, "must be whole numbers");
  }
  if (!std::ranges::is_sorted(facts.feature_layers)) config.reject(kLayers, "must be in order");
}

/// Reads the keys that some programs write beside the others, and some into an object eagle_config.
void read_choices(ConfigSource& config, Eagle3Config& eagle) {
  read_feature_layers(config, eagle.facts);
  eagle.norm_before_residual = config.boolean("norm_before_residual", eagle.norm_before_residual);
  eagle.norm_before_fc = config.boolean("norm_before_fc", eagle.norm_before_fc);
  eagle.norm_of_each_layer = config.boolean("fc_norm", eagle.norm_of_each_layer);
  eagle.norm_output = config.boolean("norm_output", eagle.norm_output);
  if (!config.boolean("use_aux_hidden_state", true)) {
    config.reject("use_aux_hidden_state", "must be true: heads of EAGLE-1 and EAGLE-2 are not supported",
                  ErrorCode::unsupported);
  }
}

/// Reads the keys of the layer, which are those of Llama or Qwen3.
void read_layer(ConfigSource& config, Eagle3Config& eagle) {
  constexpr std::int64_t kAnyPositions = 2048;  // without rope scaling they have no effect
  eagle.has_head_norms = config.string("model_type", "llama") == "qwen3";
  eagle.decoder = read_decoder(config, {.sizes = {.max_positions = kAnyPositions}});
  eagle.attention_bias = config.boolean("attention_bias", false);
  eagle.decoder.tie_word_embeddings = false;
  if (eagle.decoder.num_layers() != 1) {
    config.reject("num_hidden_layers",
                  "is " + std::to_string(eagle.decoder.num_layers()) + ": a draft head has 1 layer",
                  ErrorCode::unsupported);
  }
  if (eagle.decoder.hidden_size % 2 != 0) {
    config.reject("hidden_size", "must be even in a draft head", ErrorCode::unsupported);
  }
  if (config.has("layer_types")) read_layer_windows(config, eagle.decoder, read_window(config), 0);
}

}  // namespace

/// A draft head. The library speculators keeps the keys of its layer in an object.
ModelSpec describe_eagle3(ConfigSource& config) {
  constexpr const char* kLayer = "transformer_layer_config";
  Eagle3Config eagle;
  if (config.has(kLayer)) {
    eagle.norm_before_residual = true;
    config.object(kLayer, [&](ConfigSource& layer) { read_layer(layer, eagle); });
  } else {
    read_layer(config, eagle);
  }
  if (!config.status()) return {};
  eagle.facts.target_hidden_size = config.integer("target_hidden_size", 1, kMaxWidth, eagle.decoder.hidden_size);
  eagle.facts.draft_vocab_size =
      config.integer("draft_vocab_size", 1, eagle.decoder.vocab_size, eagle.decoder.vocab_size);
  config.object("eagle_config", [&](ConfigSource& its) { read_choices(its, eagle); });
  read_choices(config, eagle);
  ModelSpec spec = spec_of_decoder(eagle.decoder);
  spec.position_limit = kMaxPositions;  // the model's limit counts
  spec.draft_head = eagle.facts;
  spec.facts.emplace_back("draft_vocab_size", eagle.facts.draft_vocab_size);
  spec.builder = [eagle](const weights::WeightSource& source, const RankPlace&) { return build(eagle, source); };
  return spec;
}

}  // namespace pagoda::models
