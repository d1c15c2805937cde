#pragma once

#include <functional>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Runs the ops that `issue` issues, on a stream of their own, and waits for them. Errors: those of `issue` and of the
/// stream.
Status run_on_device(kernels::Device& device, const std::function<Status(kernels::Stream&)>& issue);

}  // namespace pagoda::weights
