#include "io/model_files/torch/torch_globals.hpp"

#include <array>

namespace pagoda::io {
namespace {

constexpr std::array<TorchDtype, 20> kDtypes{{
    {"F32", "float32", "FloatStorage", 4},
    {"F16", "float16", "HalfStorage", 2},
    {"BF16", "bfloat16", "BFloat16Storage", 2},
    {"F64", "float64", "DoubleStorage", 8},
    {"I64", "int64", "LongStorage", 8},
    {"I32", "int32", "IntStorage", 4},
    {"I16", "int16", "ShortStorage", 2},
    {"I8", "int8", "CharStorage", 1},
    {"U8", "uint8", "ByteStorage", 1},
    {"BOOL", "bool", "BoolStorage", 1},
    {"C64", "complex64", "ComplexFloatStorage", 8},
    {"C128", "complex128", "ComplexDoubleStorage", 16},
    {"U16", "uint16", "", 2},
    {"U32", "uint32", "", 4},
    {"U64", "uint64", "", 8},
    {"F8_E4M3", "float8_e4m3fn", "", 1},
    {"F8_E5M2", "float8_e5m2", "", 1},
    {"F8_E8M0", "float8_e8m0fnu", "", 1},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", "", 1},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", "", 1},
}};

}  // namespace

std::optional<TorchGlobal> find_torch_global(std::string_view module, std::string_view name) {
  using Kind = TorchGlobal::Kind;
  if (module == "collections" && name == "OrderedDict") return TorchGlobal{Kind::ordered_dict};
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") return TorchGlobal{Kind::rebuild_tensor_v2};
  if (module == "torch._utils" && name == "_rebuild_tensor_v3") return TorchGlobal{Kind::rebuild_tensor_v3};
  if (module == "torch._utils" && name == "_rebuild_parameter") return TorchGlobal{Kind::rebuild_parameter};
  if (module == "torch.storage" && name == "UntypedStorage") return TorchGlobal{Kind::untyped_storage};
  if (module != "torch" || name.empty()) return std::nullopt;
  for (const auto& dtype : kDtypes) {
    if (name == dtype.storage) return TorchGlobal{Kind::typed_storage, &dtype};
    if (name == dtype.torch_name) return TorchGlobal{Kind::dtype, &dtype};
  }
  return std::nullopt;
}

}  // namespace pagoda::io
