#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A tensor as torch.save describes it: a view of a storage, whose bytes are a separate entry. Only its types have been
/// checked.
struct PickledTensor {
  std::string_view dtype;  ///< element type in safetensors' notation, for example "BF16"
  std::int64_t element_bytes = 0;
  std::string_view storage;       ///< key of the storage
  std::int64_t storage_size = 0;  ///< in elements of `storage_element_bytes`
  std::int64_t storage_element_bytes = 0;
  std::int64_t offset = 0;  ///< position of the first element, in elements; strides are in elements too
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

/// Tensors by name; the names point into the pickle.
using PickledTensors = std::map<std::string_view, PickledTensor, std::less<>>;

/// Limits on the work that a pickle may cause.
inline constexpr std::size_t kMaxPickleBytes = 256'000'000;
inline constexpr std::size_t kMaxPickleOpcodes = 4'000'000;
inline constexpr std::size_t kMaxPickleStack = 1'000'000;

/// Returns the tensors of a state dict in `pickle`, the data.pkl of torch.save in protocol 2 to 5. Nothing is executed:
/// a pickle is a program, and this interpreter supports only the instructions and the globals that tensors need
/// (torch._utils._rebuild_tensor_v2, _rebuild_tensor_v3 and _rebuild_parameter, storages and dtypes of torch,
/// collections.OrderedDict).
///
/// The tensors are those of the pickled dict, or, when it has none, those of its "state_dict" or "model"; all other
/// objects are ignored. `pickle` must outlive the result. `file_name` goes into messages.
///
/// Errors, one line that names opcode or global and the place: unsupported (any other instruction or global), bad_file
/// (damage, a limit, no tensors).
Result<PickledTensors> read_torch_pickle(std::span<const std::byte> pickle, std::string_view file_name);

}  // namespace pagoda::io
