#include "pagoda/quantize_model.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/gguf/folder_from_gguf.hpp"
#include "io/model_files/gguf/gguf_from_folder.hpp"
#include "io/model_files/gguf/gguf_model_writer.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/model_location.hpp"
#include "io/model_files/quantized/compressed_tensors_writer.hpp"
#include "io/model_files/quantized/folder_parts.hpp"
#include "kernels/rotation.hpp"
#include "pagoda/calibration_texts.hpp"
#include "pagoda/model_quantizer.hpp"

namespace pagoda {
namespace {

constexpr std::int64_t kDefaultGroup = 32;

bool writes_gguf(const QuantizeOptions& options) {
  return options.out.extension() == ".gguf";
}

Status check_out(const QuantizeOptions& options) {
  if (options.out.empty()) return fail(ErrorCode::bad_config, "--out is required", "out");
  return writes_gguf(options) ? io::GgufModelWriter::check_file(options.out)
                              : io::CompressedTensorsWriter::check_folder(options.out);
}

/// Adds a wider format of 8 bits for layers that need it, if the options ask for one.
Result<ModelQuantizer::Format> with_wider_format(ModelQuantizer::Format format, const calibration::GptqFormat& wider,
                                                 const QuantizeOptions& options) {
  if (!options.bits_per_weight) return format;
  const auto refuse = [](const std::string& message) {
    return fail(ErrorCode::bad_config, message, "bits_per_weight");
  };
  if (options.bits != 4) return refuse("--bits-per-weight needs --bits 4; it gives some layers 8 bits");
  const double least = format.gptq.bits_per_weight();
  const double most = wider.bits_per_weight();
  const auto text = [](double bits) { return nlohmann::json(bits).dump(); };
  if (*options.bits_per_weight < least || *options.bits_per_weight > most) {
    return refuse("--bits-per-weight must be " + text(least) + " to " + text(most) + " here, not " +
                  text(*options.bits_per_weight));
  }
  format.wider = {.gptq = wider, .bits_per_weight = *options.bits_per_weight};
  return format;
}

/// Chooses the format of a folder, as far as it does not depend on the model.
Result<ModelQuantizer::Format> choose_folder_format(const QuantizeOptions& options) {
  ModelQuantizer::Format format{.gptq = {.bits = options.bits,
                                         .group_size = options.group_size.value_or(kDefaultGroup),
                                         .asymmetric = options.asymmetric.value_or(true)},
                                .rotate = options.rotate.value_or(true)};
  if (format.rotate && format.gptq.group_size % kernels::kRotationBlock != 0) {
    return fail(ErrorCode::bad_config,
                "--group-size must be a multiple of " + std::to_string(kernels::kRotationBlock) + ", not " +
                    std::to_string(format.gptq.group_size) + "; with --no-rotate any size is allowed",
                "group_size");
  }
  calibration::GptqFormat wider = format.gptq;
  wider.bits = 8;
  auto chosen = with_wider_format(format, wider, options);
  // Programs that compute layers with one input as one product need one format for these layers.
  if (chosen && chosen->wider) chosen->wider->inputs_are_alike = true;
  return chosen;
}

Result<ModelQuantizer::Format> choose_gguf_format(const QuantizeOptions& options) {
  const auto refuse = [](const char* message, const char* param) {
    return fail(ErrorCode::bad_config, message, param);
  };
  if (options.group_size.value_or(kDefaultGroup) != kDefaultGroup) {
    return refuse("--group-size must be 32 for a GGUF file, whose blocks have 32 columns", "group_size");
  }
  if (options.rotate.value_or(false)) {
    return refuse("--rotate is not for a GGUF file, because the format cannot record that columns are rotated",
                  "rotate");
  }
  if (options.bits == 8 && options.asymmetric.value_or(false)) {
    return refuse("--zero-points is not for 8 bits in a GGUF file: Q8_0 has no zero points", "zero_points");
  }
  const bool minimums = options.asymmetric.value_or(options.bits == 4);
  const ModelQuantizer::Format format{
      .gptq = {.bits = options.bits, .group_size = kDefaultGroup, .asymmetric = minimums, .minimums = minimums}};
  return with_wider_format(format, {.bits = 8, .group_size = kDefaultGroup}, options);
}

/// A model, and the way in which its quantised copy is written.
class Conversion {
 public:
  /// Checks everything first, so that no long work is begun for options that will be refused.
  static Result<Conversion> create(const QuantizeOptions& options) {
    if (Status status = check_out(options); !status) return fail(std::move(status.error()));
    auto format = writes_gguf(options) ? choose_gguf_format(options) : choose_folder_format(options);
    if (!format) return fail(std::move(format.error()));
    Conversion conversion(options, *format);
    Status status = conversion.open();
    if (!status) return fail(std::move(status.error()));
    return conversion;
  }

  const ModelQuantizer::Format& format() const { return format_; }
  const models::ModelSpec& spec() const { return spec_; }
  const io::ModelWeights& weights() const { return *weights_; }

  Result<std::unique_ptr<io::QuantizedModelWriter>> create_writer(const std::vector<io::WrittenModule>& modules) const {
    const calibration::GptqFormat& gptq = format_.gptq;
    if (parts_) {
      auto writer = io::GgufModelWriter::create(options_.out, *parts_, modules, {.minimums = gptq.minimums});
      if (!writer) return fail(std::move(writer.error()));
      if (is_folder()) {
        Status status = io::check_gguf_of_folder(model_, writer->part());
        if (!status) return fail(std::move(status.error()));
      }
      return std::make_unique<io::GgufModelWriter>(std::move(*writer));
    }
    auto writer = io::CompressedTensorsWriter::create(*folder_parts_, options_.out, modules,
                                                      {.group_size = gptq.group_size,
                                                       .asymmetric = gptq.asymmetric,
                                                       .scale_dtype = gptq.scale_dtype,
                                                       .rotated = format_.rotate});
    if (!writer) return fail(std::move(writer.error()));
    return std::make_unique<io::CompressedTensorsWriter>(std::move(*writer));
  }

 private:
  Conversion(const QuantizeOptions& options, const ModelQuantizer::Format& format)
      : options_(options), format_(format) {}

  Status open() {
    const auto model = io::locate_model(options_.config.model);
    if (!model) return fail(model.error());
    model_ = *model;
    const auto files = io::open_model_files(model_);
    if (!files) return fail(files.error());
    auto spec = (*files)->spec();
    if (!spec) return fail(std::move(spec.error()));
    spec_ = std::move(*spec);
    auto weights = (*files)->weights();
    if (!weights) return fail(std::move(weights.error()));
    weights_ = std::move(*weights);
    if (const std::string types = weights_->quantization(); !types.empty()) {
      return fail(ErrorCode::unsupported, "the model is quantised already (" + types + ")", "model");
    }
    return writes_gguf(options_) ? open_for_gguf() : open_for_folder();
  }

  bool is_folder() const {
    std::error_code ignored;
    return std::filesystem::is_directory(model_, ignored);
  }

  Result<io::GgufModelParts> parts_of_file() const {
    const auto file = io::GgufFile::open(model_);
    if (!file) return fail(file.error());
    return io::gguf_parts_of_file(*file);
  }

  Result<io::FolderParts> folder_parts_of_file() const {
    const auto file = io::GgufFile::open(model_);
    if (!file) return fail(file.error());
    return io::folder_parts_of_gguf(*file);
  }

  Result<io::FolderParts> folder_parts_of_folder() {
    auto checkpoint = io::Checkpoint::open(model_);
    if (!checkpoint) return fail(std::move(checkpoint.error()));
    checkpoint_ = std::move(*checkpoint);
    return io::folder_parts_of_folder(model_, *checkpoint_);
  }

  Status open_for_folder() {
    if (spec_.checkpoint_dtype == DType::bf16) {
      format_.gptq.scale_dtype = DType::bf16;
      if (format_.wider) format_.wider->gptq.scale_dtype = DType::bf16;
    }
    auto parts = is_folder() ? folder_parts_of_folder() : folder_parts_of_file();
    if (!parts) return fail(std::move(parts.error()));
    folder_parts_ = std::move(*parts);
    const auto tied = folder_parts_->config.find("tie_word_embeddings");
    if (tied != folder_parts_->config.end()) *tied = spec_.tie_word_embeddings;
    return {};
  }

  Status open_for_gguf() {
    auto parts = is_folder() ? io::gguf_parts_of_folder(model_) : parts_of_file();
    if (!parts) return fail(std::move(parts.error()));
    parts_ = std::move(*parts);
    return {};
  }

  const QuantizeOptions& options_;
  std::filesystem::path model_;  // location of options_.config.model
  ModelQuantizer::Format format_;
  models::ModelSpec spec_;
  std::shared_ptr<const io::ModelWeights> weights_;
  std::unique_ptr<io::Checkpoint> checkpoint_;   // checkpoint of a folder that is written as a folder
  std::optional<io::FolderParts> folder_parts_;  // parts of the folder to write
  std::optional<io::GgufModelParts> parts_;      // parts of the GGUF file to write
};

}  // namespace

Result<QuantizeReport> quantize_model(const QuantizeOptions& options, const StartProgress& progress) {
  auto conversion = Conversion::create(options);
  if (!conversion) return fail(std::move(conversion.error()));
  const models::ModelSpec& spec = conversion->spec();
  EngineConfig config = options.config;
  config.device = "cpu";
  config.quantize = "none";
  config.weight_memory = "mapped";  // so that the engine that writes texts uses the same weights
  config.packed_cache = "off";
  const std::int64_t context = std::min(options.context, spec.max_position_embeddings);
  const std::int64_t num_texts = (options.calibration_tokens + context - 1) / context;
  const auto model = TokenLogits::create(config, static_cast<std::int32_t>(context), progress);
  if (!model) return fail(model.error());
  ModelQuantizer quantizer(conversion->format(), conversion->weights(), **model, progress);
  if (Status status = quantizer.look(); !status) return fail(std::move(status.error()));
  Result<std::vector<TokenIds>> texts;
  if (!options.calibration_text.empty()) {
    texts = cut_text((*model)->tokenizer(), options.calibration_text, num_texts, context);
    if (!texts) return fail(texts.error());
  }
  // With two formats this writer is only a check: what is written depends on the format of each layer.
  auto writer = conversion->create_writer(quantizer.modules());
  if (!writer) return fail(std::move(writer.error()));
  const bool chooses = conversion->format().wider.has_value();
  if (chooses) writer->reset();
  if (options.calibration_text.empty()) texts = write_texts(config, spec, num_texts, context, progress);
  if (!texts) return fail(texts.error());
  Status status;
  if (chooses) {
    status = quantizer.choose_bits(*texts);
    if (!status) return fail(std::move(status.error()));
    writer = conversion->create_writer(quantizer.modules());
    if (!writer) return fail(std::move(writer.error()));
  }
  status = quantizer.run(*texts, **writer);
  if (!status) return fail(std::move(status.error()));
  QuantizeReport report;
  const auto modules = quantizer.modules();
  report.num_modules = std::ssize(modules);
  report.num_8bit_modules = std::ranges::count(modules, 8, &io::WrittenModule::bits);
  report.calibration_tokens = std::ssize(*texts) * context;
  report.model_bytes = conversion->weights().facts().weight_bytes;
  report.written_bytes = (*writer)->written_bytes();
  report.bits_per_weight = quantizer.bits_per_weight();
  return report;
}

}  // namespace pagoda
