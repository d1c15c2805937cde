#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Memory that lies in a file of `folder`, for KV blocks that are swapped out to disk. The file has no name and goes
/// with the buffer; its space is reserved at once. Errors name the key swap_dir and the folder: bad_config when no
/// file can be made in it, out_of_memory when its disk is too small, io_failed for the rest.
Result<kernels::Buffer> map_swap_file(const std::string& folder, std::int64_t bytes);

}  // namespace pagoda::io
