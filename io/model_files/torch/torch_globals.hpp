#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pagoda::io {

/// An element type of torch.
struct TorchDtype {
  std::string_view name;        ///< safetensors' name, for example "BF16"
  std::string_view torch_name;  ///< torch.<this>
  std::string_view storage;     ///< torch.<this>; empty for a type that has no storage class
  std::int64_t element_bytes = 0;
};

/// A Python global that a state dict of tensors may use.
struct TorchGlobal {
  enum class Kind : std::uint8_t {
    ordered_dict,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_parameter,
    typed_storage,    ///< with `dtype`
    untyped_storage,  ///< of bytes
    dtype,            ///< with `dtype`
  };
  Kind kind = Kind::ordered_dict;
  const TorchDtype* dtype = nullptr;
};

/// Returns nothing for a global that is not allowed.
std::optional<TorchGlobal> find_torch_global(std::string_view module, std::string_view name);

}  // namespace pagoda::io
