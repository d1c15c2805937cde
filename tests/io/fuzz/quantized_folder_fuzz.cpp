// libFuzzer target; the seeds are in corpus/quantized_folder.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/quantized_folder_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_quantized_folder({reinterpret_cast<const char*>(data), size});
  return 0;
}
