#include "engine/weights/run_on_device.hpp"

#include <memory>
#include <utility>

namespace pagoda::weights {

Status run_on_device(kernels::Device& device, const std::function<Status(kernels::Stream&)>& issue) {
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));
  Status status;
  (*stream)->submit([&] { status = issue(**stream); });
  (*stream)->synchronize();
  return status ? (*stream)->status() : status;
}

}  // namespace pagoda::weights
