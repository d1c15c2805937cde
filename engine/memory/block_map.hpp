#pragma once

#include "engine/memory/sequence_store.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::memory {

/// Who holds which block of the device pool: cells and owners, in at most view::kMaxCells cells. Takes a look at each
/// entry that the block tables own and at a few blocks of each cell, however large the pool.
view::BlockMap map_blocks(const SequenceStore& store);

}  // namespace pagoda::memory
