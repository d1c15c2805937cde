#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Maps memory in a new file of `folder`, for KV blocks that are swapped out to disk. The file has no name and is
/// removed with the buffer; its disk space is reserved at once. Errors name the key swap_dir and the folder: bad_config
/// if no file can be made in it, out_of_memory if the disk is too small, io_failed for all other errors.
Result<kernels::Buffer> map_swap_file(const std::string& folder, std::int64_t bytes);

}  // namespace pagoda::io
