// libFuzzer target; the seeds are in tests/data/torch.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/torch_file_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_torch_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
