#pragma once

#include <memory>

#include "engine/weights/kept_copies.hpp"
#include "io/packed_cache/packed_cache.hpp"
#include "kernels/device.hpp"

namespace pagoda::io {

/// Returns copies of weights of which the packed and quantised ones are read from the model's file in the cache, if it
/// has them. A copy whose checksum differs is made anew. If copies had to be made, a thread writes all of them to the
/// cache once they are complete. The destructor of the result waits some seconds for it and then stops it; a process
/// that is killed meanwhile keeps nothing. What cannot be written is logged.
///
/// `kept`: memory in which copies outlive the process or the engine; null = the memory of `device`, which must share
/// the host's memory. `min_bytes`: least size of all copies together for which a file is written.
std::shared_ptr<weights::KeptCopies> cached_copies(std::shared_ptr<const PackedCache> cache, PackedModel model,
                                                   std::int64_t min_bytes, std::shared_ptr<kernels::Device> device,
                                                   std::shared_ptr<weights::KeptCopies> kept);

}  // namespace pagoda::io
