#include "pagoda/quantize_model.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/calibration/gptq.hpp"
#include "engine/calibration/input_products.hpp"
#include "engine/calibration/rotated.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/quantized/compressed_tensors_writer.hpp"
#include "kernels/rotation.hpp"
#include "pagoda/engine.hpp"
#include "pagoda/token_logits.hpp"

namespace pagoda {
namespace {

using calibration::ErrorFeedback;
using calibration::InputProducts;
using calibration::SharedInput;
using Module = io::CompressedTensorsWriter::Module;

constexpr std::uint64_t kSeed = 1;

/// Texts that the model writes by itself, from its first token on where it has one, else from any.
Result<std::vector<TokenIds>> write_texts(const EngineConfig& config, const models::ModelSpec& spec,
                                          std::int64_t num_texts, std::int64_t context, const StartProgress& progress) {
  EngineConfig writing = config;
  writing.max_model_len = context;
  writing.max_num_seqs = static_cast<std::int32_t>(std::min<std::int64_t>(num_texts, 32));
  const auto engine = Engine::create(writing, {.device = nullptr, .progress = progress});
  if (!engine) return fail(engine.error());
  std::mt19937_64 random(kSeed);
  std::vector<TokenIds> texts;
  while (std::ssize(texts) < num_texts) {
    if (progress) progress("writing texts", static_cast<double>(texts.size()) / static_cast<double>(num_texts));
    std::vector<GenerateRequest> some(std::min<std::size_t>(static_cast<std::size_t>(num_texts) - texts.size(), 32));
    for (GenerateRequest& request : some) {
      const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spec.vocab_size));
      request.prompt_token_ids = {spec.bos_token_id ? std::int64_t{*spec.bos_token_id} : any};
      request.stream = false;
      request.sampling.max_tokens = context - 1;
      request.sampling.ignore_eos = true;
      request.sampling.temperature = 1;
      request.sampling.seed = kSeed + texts.size() + static_cast<std::size_t>(&request - some.data());
    }
    const auto results = (*engine)->generate(some);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) return fail(results[i].error());
      TokenIds text{static_cast<TokenId>(some[i].prompt_token_ids->front())};
      const TokenIds& written = results[i]->outputs.front().token_ids;
      text.insert(text.end(), written.begin(), written.end());
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

/// The first tokens of `text`, in pieces.
Result<std::vector<TokenIds>> cut_text(const text::Tokenizer& tokenizer, const std::string& text,
                                       std::int64_t num_texts, std::int64_t context) {
  const auto ids = tokenizer.encode(text, true);
  if (!ids) return fail(ids.error());
  std::vector<TokenIds> texts;
  for (std::int64_t begin = 0; begin + context <= std::ssize(*ids) && std::ssize(texts) < num_texts; begin += context) {
    texts.emplace_back(ids->begin() + begin, ids->begin() + begin + context);
  }
  if (!texts.empty()) return texts;
  return fail(ErrorCode::bad_config,
              "the calibration text has " + std::to_string(ids->size()) + " tokens, fewer than one piece of " +
                  std::to_string(context),
              "calibration");
}

/// Runs the model over the texts and quantises what it sees.
class ModelQuantizer {
 public:
  ModelQuantizer(const QuantizeOptions& options, const calibration::GptqFormat& format,
                 const io::Checkpoint& checkpoint, TokenLogits& model, const StartProgress& progress)
      : options_(options),
        format_(format),
        checkpoint_(checkpoint),
        model_(model),
        progress_(progress),
        device_(model.device()),
        products_(device_) {}

  /// Finds out what there is to quantise.
  Status look() {
    Status status = model_.run({0}, 1, nothing, &products_);
    return status ? choose_modules() : status;
  }

  /// Call once look() has been.
  Result<io::CompressedTensorsWriter> create_writer() const {
    return io::CompressedTensorsWriter::create(options_.config.model, checkpoint_, options_.out, modules_,
                                               {.bits = format_.bits,
                                                .group_size = format_.group_size,
                                                .asymmetric = format_.asymmetric,
                                                .scale_dtype = format_.scale_dtype,
                                                .rotated = options_.rotate});
  }

  Status run(const std::vector<TokenIds>& texts, io::CompressedTensorsWriter& writer) {
    auto stream = device_->create_stream("pagoda-quantize");
    if (!stream) return fail(std::move(stream.error()));
    Status status;
    for (std::size_t begin = 0; begin < products_.inputs().size() && status;) {
      const std::size_t end = as_many_as_fit(begin);
      status = collect(begin, end, texts);
      for (std::size_t input = begin; input < end && status; ++input) {
        (*stream)->submit([&] { status = quantize(**stream, input, writer); });
        (*stream)->synchronize();
      }
      begin = end;
    }
    if (progress_) progress_("quantising", 1);
    return status ? writer.finish() : status;
  }

  const std::vector<Module>& modules() const { return modules_; }

 private:
  static void nothing(std::int32_t, std::span<const float>) {}

  static std::string weight_of(const layers::LinearModule& module) { return module.name + ".weight"; }

  bool has(const layers::LinearModule& module) const { return checkpoint_.contains(weight_of(module)); }

  Status choose_modules() {
    const std::int64_t group_size = format_.group_size;
    for (const SharedInput& input : products_.inputs()) {
      for (const layers::LinearModule& module : input.modules) {
        if (!has(module)) continue;
        if (input.in_features % group_size != 0) {
          return fail(ErrorCode::bad_config,
                      "groups of " + std::to_string(group_size) + " do not divide the " +
                          std::to_string(input.in_features) + " columns of " + module.name,
                      "group_size");
        }
        if (options_.rotate && input.in_features % kernels::kRotationBlock != 0) {
          return fail(ErrorCode::bad_config,
                      "the " + std::to_string(input.in_features) + " columns of " + module.name +
                          " are not whole blocks of " + std::to_string(kernels::kRotationBlock) +
                          ", so they cannot be rotated",
                      "rotate");
        }
        modules_.push_back({module.name, module.out_features, input.in_features});
      }
    }
    if (!modules_.empty()) return {};
    return fail(ErrorCode::unsupported, "no linear layer of the model is a plain matrix of its checkpoint", "model");
  }

  /// The end of the inputs from `begin` on, one at least, whose products fit in half of the memory that is free.
  std::size_t as_many_as_fit(std::size_t begin) const {
    const std::int64_t most = device_->available_bytes(kernels::MemoryKind::host) / 2;
    std::int64_t bytes = 0;
    std::size_t end = begin;
    for (; end < products_.inputs().size(); ++end) {
      bytes += products_.inputs()[end].product_bytes();
      if (end > begin && bytes > most) break;
    }
    return end;
  }

  Status collect(std::size_t begin, std::size_t end, const std::vector<TokenIds>& texts) {
    Status status = products_.collect(begin, end);
    for (std::size_t i = 0; i < texts.size() && status; ++i) {
      report("calibrating", i, texts.size());
      status = model_.run(texts[i], static_cast<std::int32_t>(texts[i].size()), nothing, &products_);
    }
    return status;
  }

  Status quantize(kernels::Stream& stream, std::size_t input, io::CompressedTensorsWriter& writer) {
    const SharedInput& shared = products_.inputs()[input];
    kernels::Buffer products = products_.take(input);
    if (std::ranges::none_of(shared.modules, [&](const auto& module) { return has(module); })) return {};
    if (options_.rotate) {
      Status status = calibration::rotate_products(*device_, stream, products.as<float>(), shared.in_features);
      if (!status) return status;
    }
    const auto feedback = ErrorFeedback::factorize(*device_, stream, std::move(products), shared.in_features);
    if (!feedback) return named(shared.modules.front(), feedback.error());
    for (const layers::LinearModule& module : shared.modules) {
      if (!has(module)) continue;
      report("quantising", num_done_, modules_.size());
      if (Status status = quantize(stream, module, *feedback, writer); !status) return named(module, status.error());
      ++num_done_;
    }
    return {};
  }

  Status quantize(kernels::Stream& stream, const layers::LinearModule& module, const ErrorFeedback& feedback,
                  io::CompressedTensorsWriter& writer) {
    const std::int64_t rows = module.out_features;
    const std::int64_t columns = feedback.size();
    const auto tensor = checkpoint_.tensor(weight_of(module), {rows, columns});
    if (!tensor) return fail(tensor.error());
    const auto count = static_cast<std::size_t>(rows * columns);
    const auto weights = device_->allocate(count * sizeof(float), kernels::MemoryKind::host);
    if (!weights) return fail(weights.error());
    Status status = device_->ops().convert(stream, {.from = tensor->data,
                                                    .from_dtype = tensor->dtype,
                                                    .to = weights->data(),
                                                    .to_dtype = DType::f32,
                                                    .count = rows * columns});
    if (status && options_.rotate) {
      status = calibration::rotate_columns(*device_, stream, weights->as<float>(), rows, columns);
    }
    if (!status) return status;
    const auto matrix = calibration::quantize_gptq(*device_, stream, weights->as<float>(), rows, feedback, format_);
    if (!matrix) return fail(matrix.error());
    return writer.write({module.name, rows, columns}, matrix->q, matrix->scales, matrix->zeros);
  }

  static Status named(const layers::LinearModule& module, Error error) {
    error.message = "module " + module.name + ": " + error.message;
    return fail(std::move(error));
  }

  void report(std::string_view what, std::size_t done, std::size_t of) const {
    if (progress_) progress_(what, static_cast<double>(done) / static_cast<double>(of));
  }

  const QuantizeOptions& options_;
  const calibration::GptqFormat format_;
  const io::Checkpoint& checkpoint_;
  TokenLogits& model_;
  const StartProgress& progress_;
  std::shared_ptr<kernels::Device> device_;
  InputProducts products_;
  std::vector<Module> modules_;
  std::size_t num_done_ = 0;
};

/// The folder's weights, which must be there as they were trained.
Result<std::unique_ptr<io::Checkpoint>> open_checkpoint(const QuantizeOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.config.model, error)) {
    return fail(ErrorCode::unsupported,
                options.config.model + " is not a Hugging Face folder; only such a model can be quantised", "model");
  }
  return io::Checkpoint::open(options.config.model);
}

}  // namespace

Result<QuantizeReport> quantize_model(const QuantizeOptions& options, const StartProgress& progress) {
  // What takes long is not begun for a folder that will be refused.
  if (options.out.empty()) return fail(ErrorCode::bad_config, "--out is required", "out");
  if (Status status = io::CompressedTensorsWriter::check_folder(options.out); !status) return fail(status.error());
  if (options.rotate && options.group_size % kernels::kRotationBlock != 0) {
    return fail(ErrorCode::bad_config,
                "groups of rotated columns must be a multiple of " + std::to_string(kernels::kRotationBlock) +
                    ", not " + std::to_string(options.group_size) + "; --no-rotate takes any",
                "group_size");
  }
  const auto checkpoint = open_checkpoint(options);
  if (!checkpoint) return fail(checkpoint.error());
  const auto files = io::open_model_files(options.config.model);
  if (!files) return fail(files.error());
  const auto spec = (*files)->spec();
  if (!spec) return fail(spec.error());
  if (const auto weights = (*files)->weights(); !weights || !(*weights)->quantization().empty()) {
    if (!weights) return fail(weights.error());
    return fail(ErrorCode::unsupported, "the model is quantised already (" + (*weights)->quantization() + ")", "model");
  }
  EngineConfig config = options.config;
  config.device = "cpu";
  config.quantize = "none";
  config.weight_memory = "mapped";  // the engine that writes texts uses the same
  const std::int64_t context = std::min(options.context, spec->max_position_embeddings);
  const std::int64_t num_texts = (options.calibration_tokens + context - 1) / context;
  const auto model = TokenLogits::create(config, static_cast<std::int32_t>(context), progress);
  if (!model) return fail(model.error());
  const calibration::GptqFormat format{.bits = options.bits,
                                       .group_size = options.group_size,
                                       .asymmetric = options.asymmetric,
                                       .scale_dtype = spec->checkpoint_dtype == DType::bf16 ? DType::bf16 : DType::f16};
  ModelQuantizer quantizer(options, format, **checkpoint, **model, progress);
  if (Status status = quantizer.look(); !status) return fail(std::move(status.error()));
  Result<std::vector<TokenIds>> texts;
  if (!options.calibration_text.empty()) {
    texts = cut_text((*model)->tokenizer(), options.calibration_text, num_texts, context);
    if (!texts) return fail(texts.error());
  }
  auto writer = quantizer.create_writer();
  if (!writer) return fail(writer.error());
  if (options.calibration_text.empty()) texts = write_texts(config, *spec, num_texts, context, progress);
  if (!texts) return fail(texts.error());
  if (Status status = quantizer.run(*texts, *writer); !status) return fail(std::move(status.error()));
  QuantizeReport report;
  std::int64_t weights = 0;
  for (const Module& module : quantizer.modules()) weights += module.rows * module.columns;
  report.num_modules = std::ssize(quantizer.modules());
  report.calibration_tokens = std::ssize(*texts) * context;
  report.model_bytes = (*checkpoint)->facts().weight_bytes;
  report.written_bytes = static_cast<std::int64_t>(std::filesystem::file_size(options.out / "model.safetensors"));
  report.bits_per_weight =
      options.bits + (16.0 + (options.asymmetric ? options.bits : 0)) / static_cast<double>(options.group_size);
  return report;
}

}  // namespace pagoda
