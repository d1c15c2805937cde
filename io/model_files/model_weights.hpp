#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Facts of a checkpoint that cost no reading of weights.
struct CheckpointFacts {
  std::string format;  ///< of the files: safetensors, pytorch, gguf or dummy
  std::int64_t num_files = 0;
  std::int64_t num_tensors = 0;
  std::int64_t num_parameters = 0;  ///< elements of all tensors
  std::int64_t weight_bytes = 0;
};

/// The weights of a model's files, of whatever format. Thread-safe.
class ModelWeights : public weights::WeightSource {
 public:
  virtual CheckpointFacts facts() const = 0;
  /// Whether weights that are used where they lie are pages of mapped files, which the system can take back, and no
  /// memory of their own.
  virtual bool is_mapped() const { return true; }
  /// Types of the file's matrices that are quantised, such as "Q4_K, Q6_K"; empty when none is.
  virtual std::string quantization() const { return {}; }
  /// To be asked once a model has taken its weights: bad_file or unsupported when it has left some, for then the config
  /// belongs to another checkpoint, or the model has a part that is not built.
  virtual Status check_all_taken(const models::ModelSpec& spec) const = 0;
};

}  // namespace pagoda::io
