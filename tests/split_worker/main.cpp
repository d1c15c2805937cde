// A worker process on a device with memory of its own, as a GPU has: pagoda_split_worker MIB [BREAKS_ONCE].
// MIB: of the device. BREAKS_ONCE: a file that is not there yet; the first process makes it, and its device fails for
// good after some hundred ops.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "pagoda/worker_process.hpp"
#include "tests/support/split_memory_device.hpp"

int main(int argc, char** argv) {
  const auto bytes = static_cast<std::size_t>(std::atoll(argc > 1 ? argv[1] : "")) << 20U;
  const std::filesystem::path breaks_once = argc > 2 ? argv[2] : "";
  pagoda::run_worker_process({.create_device = [=](const pagoda::EngineConfig&) {
    auto device = std::make_shared<pagoda::test::SplitMemoryDevice>(
        pagoda::test::SplitMemoryDevice::Options{.device_bytes = bytes});
    if (!breaks_once.empty() && !std::filesystem::exists(breaks_once)) {
      std::ofstream(breaks_once).put('x');
      device->break_after("pagoda-step", 3000, /*only_the_stream=*/false);
    }
    return pagoda::Result<std::shared_ptr<pagoda::kernels::Device>>(std::move(device));
  }});
}
