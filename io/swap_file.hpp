#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Memory that lies in a file of `folder`, for KV blocks that are swapped out to disk. The file has no name and goes
/// with the buffer; its space is reserved at once. Errors: io_failed that names the key swap_dir and the folder;
/// out_of_memory when the disk is too small.
Result<kernels::Buffer> map_swap_file(const std::string& folder, std::int64_t bytes);

}  // namespace pagoda::io
