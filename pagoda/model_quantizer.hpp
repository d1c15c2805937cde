#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/calibration/gptq.hpp"
#include "engine/calibration/input_products.hpp"
#include "engine/weights/weight_source.hpp"
#include "io/model_files/quantized/quantized_model_writer.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"
#include "pagoda/rounding_trials.hpp"
#include "pagoda/token_logits.hpp"

namespace pagoda {

/// Runs a model over texts and quantises the weights of its linear layers with GPTQ. The constructor's arguments must
/// outlive this object.
class ModelQuantizer {
 public:
  /// Format of layers that need more bits than others.
  struct WiderFormat {
    calibration::GptqFormat gptq;
    double bits_per_weight = 0;     ///< maximum bits per weight over all layers together
    bool inputs_are_alike = false;  ///< whether layers that share their input have the same number of bits
  };
  struct Format {
    calibration::GptqFormat gptq;
    std::optional<WiderFormat> wider = {};  ///< none: all layers have the same number of bits
    bool rotate = false;                    ///< whether columns are rotated (kernels/rotation.hpp)
  };

  ModelQuantizer(const Format& format, const weights::WeightSource& weights, TokenLogits& model,
                 const StartProgress& progress)
      : format_(format),
        weights_(weights),
        model_(model),
        progress_(progress),
        device_(model.device()),
        products_(device_) {}

  /// Finds the layers to quantise. Errors: bad_config (param group_size or rotate: they do not fit a layer),
  /// unsupported (no layer is a plain matrix of its checkpoint), those of TokenLogits::run.
  Status look();
  /// Rounds a few layers at a time and measures how much the model's output changes. Gives the wider format to the
  /// layers whose rounding changes the output most. Needs Format::wider. Call after look(). Errors: as run.
  Status choose_bits(const std::vector<TokenIds>& texts);
  /// Returns the layers that look() has found, with the chosen bits.
  std::vector<io::WrittenModule> modules() const;
  /// Returns the bits per weight of all modules, including scales.
  double bits_per_weight() const;

  /// Quantises all modules and finishes the writer.
  Status run(const std::vector<TokenIds>& texts, io::QuantizedModelWriter& writer);

 private:
  struct FoundModule {
    io::WrittenModule written;
    layers::LinearModule layer;
    std::size_t input = 0;  ///< index in products_.inputs()
  };
  /// Layers whose bits are chosen together, as indices in modules_.
  using LayerGroup = std::vector<std::size_t>;

  bool takes(const layers::LinearModule& module) const;
  std::vector<LayerGroup> layer_groups() const;
  Result<double> try_rounded(kernels::Stream& stream, const LayerGroup& group, RoundingTrials& trials) const;
  Result<weights::LinearWeight> rounded(kernels::Stream& stream, const FoundModule& module) const;
  const calibration::GptqFormat& format_of(int bits) const;
  Status choose_modules();
  Status check_columns(const layers::LinearModule& module, std::int64_t columns) const;
  std::size_t as_many_as_fit(std::size_t begin) const;
  Status collect(std::size_t begin, std::size_t end, const std::vector<TokenIds>& texts);
  Status quantize(kernels::Stream& stream, std::size_t input, io::QuantizedModelWriter& writer);
  Status quantize(kernels::Stream& stream, const layers::LinearModule& module, int bits,
                  const calibration::ErrorFeedback& feedback, io::QuantizedModelWriter& writer);
  Result<kernels::Buffer> read_weights(kernels::Stream& stream, const layers::LinearModule& module,
                                       std::int64_t columns, DType* stored = nullptr) const;
  void report(std::string_view what, std::size_t done, std::size_t of) const;

  const Format format_;
  const weights::WeightSource& weights_;
  TokenLogits& model_;
  const StartProgress& progress_;
  std::shared_ptr<kernels::Device> device_;
  calibration::InputProducts products_;
  std::vector<FoundModule> modules_;
  std::size_t num_done_ = 0;
};

}  // namespace pagoda
