// libFuzzer target; the seeds are in tests/data/gguf.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/gguf_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_gguf({reinterpret_cast<const char*>(data), size});
  return 0;
}
