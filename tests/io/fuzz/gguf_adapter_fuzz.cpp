// libFuzzer target; the seeds are in corpus/gguf_adapter.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/adapter_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_gguf_adapter({reinterpret_cast<const char*>(data), size});
  return 0;
}
