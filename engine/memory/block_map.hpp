#pragma once

#include "engine/memory/sequence_store.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::memory {

/// Returns which sequence holds which block of the device pool: cells and owners, in at most view::kMaxCells cells.
/// Reads each entry that the block tables own, and a few blocks of each cell, whatever the size of the pool.
view::BlockMap map_blocks(const SequenceStore& store);

}  // namespace pagoda::memory
