#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/memory/kv_events.hpp"

namespace pagoda::kv_events {

/// Returns the name of a loaded adapter.
using AdapterName = std::function<std::string(AdapterId)>;

/// Returns a batch as MessagePack in the form of vLLM 0.24 and later: an array of the time (seconds since 1970), the
/// events, and the replica. An event is a map with its type and the fields of vLLM's class of this name. All blocks are
/// on the medium GPU, vLLM's word for the memory of the device, and in one group, number 0.
std::vector<std::uint8_t> encode(const memory::KvEventBatch& batch, double seconds, ReplicaId replica,
                                 const AdapterName& name_of);

}  // namespace pagoda::kv_events
