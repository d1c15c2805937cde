#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// What is not given is as it is best in the format that is written: groups of 32 columns; in a folder zero points and
/// rotated columns; in a GGUF file minimums with 4 bits, and neither with 8.
struct QuantizeOptions {
  EngineConfig config;        ///< keys of model, dtype and threads count; the device is the CPU
  std::filesystem::path out;  ///< a GGUF file where it ends with .gguf, else a folder
  int bits = 4;               ///< 4 or 8
  /// At most so many on average, scales included: layers that need it most, as runs with some of them rounded tell,
  /// have 8 bits and the others 4. None: all have `bits`.
  std::optional<double> bits_per_weight;
  std::optional<std::int64_t> group_size;  ///< columns that share a scale
  std::optional<bool> asymmetric;          ///< and a zero point, or a minimum
  std::optional<bool> rotate;    ///< the columns (kernels/rotation.hpp); blocks of 32 divide those of every layer then
  std::string calibration_text;  ///< empty: the model writes its own
  std::int64_t calibration_tokens = 16384;  ///< or a few more: texts are whole
  std::int64_t context = 512;               ///< tokens of one of the texts that calibration is done with
};

struct QuantizeReport {
  std::int64_t num_modules = 0;         ///< linear layers that are quantised
  std::int64_t num_8bit_modules = 0;    ///< of these
  std::int64_t calibration_tokens = 0;  ///< that the model was run over
  std::int64_t model_bytes = 0;         ///< of all weights, before
  std::int64_t written_bytes = 0;       ///< and after
  double bits_per_weight = 0;           ///< of the quantised layers, scales included
};

/// Quantises the linear layers of a model, all but the head, with GPTQ (engine/calibration/gptq.hpp). A Hugging Face
/// folder or a GGUF file is written as such a folder (io/model_files/quantized/compressed_tensors_writer.hpp) or as a
/// GGUF file (io/model_files/gguf/gguf_model_writer.hpp). The texts that say which weights matter are
/// `calibration_text`, or some that the model writes at temperature 1, always the same. Blocks; takes the memory of the
/// model, of the KV cache of some texts, and up to half of what is left for products of inputs; before, where layers
/// have different bits, that of the scores behind 256 tokens and of one layer in float32. Errors: those of
/// Engine::create; bad_config (param: bits_per_weight, group_size, zero_points, rotate, calibration or out);
/// unsupported (a model that is quantised already, none of whose layers is a plain matrix of its checkpoint, or that
/// what is written cannot express).
Result<QuantizeReport> quantize_model(const QuantizeOptions& options, const StartProgress& progress);

}  // namespace pagoda
