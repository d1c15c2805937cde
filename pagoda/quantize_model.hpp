#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// Options of quantize_model. Options without a value get the best value of the written format: groups of 32 columns;
/// in a folder zero points and rotated columns; in a GGUF file minimums with 4 bits, and no minimums with 8.
struct QuantizeOptions {
  EngineConfig config;        ///< only its keys of model, dtype and threads matter; the device is the CPU
  std::filesystem::path out;  ///< a GGUF file if it ends with .gguf, else a folder
  int bits = 4;               ///< 4 or 8
  /// Maximum bits per weight on average, including scales. Trial runs with some layers rounded find the layers that
  /// need more bits: these get 8 bits, the others 4. None: all layers have `bits`.
  std::optional<double> bits_per_weight;
  std::optional<std::int64_t> group_size;  ///< number of columns that share a scale
  std::optional<bool> asymmetric;          ///< whether scales come with a zero point or a minimum
  /// Whether columns are rotated (kernels/rotation.hpp). Blocks of 32 must divide the columns of every layer then.
  std::optional<bool> rotate;
  std::string calibration_text;             ///< empty: the model writes the texts itself
  std::int64_t calibration_tokens = 16384;  ///< number of tokens, or a few more, since texts are not cut
  std::int64_t context = 512;               ///< number of tokens of each calibration text
};

struct QuantizeReport {
  std::int64_t num_modules = 0;         ///< number of linear layers that are quantised
  std::int64_t num_8bit_modules = 0;    ///< number of these layers with 8 bits
  std::int64_t calibration_tokens = 0;  ///< number of tokens over which the model was run
  std::int64_t model_bytes = 0;         ///< size of all weights before
  std::int64_t written_bytes = 0;       ///< size of all weights after
  double bits_per_weight = 0;           ///< average over the quantised layers, including scales
};

/// Quantises all linear layers of a model except the head, with GPTQ (engine/calibration/gptq.hpp). Reads a Hugging
/// Face folder or a GGUF file. Writes a folder (io/model_files/quantized/compressed_tensors_writer.hpp) or a GGUF file
/// (io/model_files/gguf/gguf_model_writer.hpp). The texts that show which weights matter are `calibration_text`, or
/// texts that the model writes at temperature 1, always the same. Blocks.
/// Memory: that of the model, the KV cache of some texts, and up to half of the rest for products of inputs. If layers
/// have different bits, before that also the scores behind 256 tokens and one layer in float32.
/// Errors: those of Engine::create; bad_config (param: bits_per_weight, group_size, zero_points, rotate, calibration or
/// out); unsupported (the model is quantised already, none of its layers is a plain matrix of its checkpoint, or the
/// written format cannot express the model).
Result<QuantizeReport> quantize_model(const QuantizeOptions& options, const StartProgress& progress);

}  // namespace pagoda
