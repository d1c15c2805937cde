#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

struct QuantizeOptions {
  EngineConfig config;           ///< keys of model, dtype and threads count; the device is the CPU
  std::filesystem::path out;     ///< folder to be made
  int bits = 4;                  ///< 4 or 8
  std::int64_t group_size = 32;  ///< columns that share a scale
  bool asymmetric = true;        ///< and a zero point
  bool rotate = true;            ///< the columns (kernels/rotation.hpp); blocks of 32 divide those of every layer then
  std::string calibration_text;  ///< empty: the model writes its own
  std::int64_t calibration_tokens = 16384;  ///< or a few more: texts are whole
  std::int64_t context = 512;               ///< tokens of one of the texts that calibration is done with
};

struct QuantizeReport {
  std::int64_t num_modules = 0;         ///< linear layers that are quantised
  std::int64_t calibration_tokens = 0;  ///< that the model was run over
  std::int64_t model_bytes = 0;         ///< of all weights, before
  std::int64_t written_bytes = 0;       ///< and after
  double bits_per_weight = 0;           ///< of the quantised layers, scales included
};

/// Quantises the linear layers of a Hugging Face model folder, all but the head, with GPTQ
/// (engine/calibration/gptq.hpp) and writes the folder `out` (io/model_files/quantized/compressed_tensors_writer.hpp).
/// The texts that say which weights matter are `calibration_text`, or some that the model writes at temperature 1,
/// always the same. Blocks; takes the memory of the model, of the KV cache of some texts, and up to half of what is
/// left for products of inputs. Errors: those of Engine::create; bad_config (param: group_size, rotate, calibration or
/// out); unsupported (a GGUF file, a model that is quantised already, none of whose layers is a plain matrix of its
/// checkpoint).
Result<QuantizeReport> quantize_model(const QuantizeOptions& options, const StartProgress& progress);

}  // namespace pagoda
