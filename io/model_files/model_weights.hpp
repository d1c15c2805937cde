#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Facts about a checkpoint that are known without reading its weights.
struct CheckpointFacts {
  std::string format;  ///< format of the files: safetensors, pytorch, gguf or dummy
  std::int64_t num_files = 0;
  std::int64_t num_tensors = 0;
  std::int64_t num_parameters = 0;  ///< number of elements of all tensors
  std::int64_t weight_bytes = 0;
};

/// The weights of a model's files in any format. Thread-safe.
class ModelWeights : public weights::WeightSource {
 public:
  virtual CheckpointFacts facts() const = 0;
  /// Returns whether weights that are used in place are pages of mapped files, which the system can reclaim; else they
  /// are allocated memory.
  virtual bool is_mapped() const { return true; }
  /// Returns the types of the file's quantised matrices, such as "Q4_K, Q6_K"; empty when no matrix is quantised.
  virtual std::string quantization() const { return {}; }
  /// Call after a model has taken its weights. Errors: bad_file or unsupported when weights are left over: the config
  /// then belongs to another checkpoint, or the model has a part that is not implemented.
  virtual Status check_all_used(const models::ModelSpec& spec) const = 0;
};

}  // namespace pagoda::io
