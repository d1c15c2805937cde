#pragma once

#include <cstdint>

namespace pagoda::io {

/// Digests that are others when a build has other fields, as records have no tags.

/// Of all records.
std::uint64_t layout_of_records();
/// Of those alone that resumable requests are recovered from: the output core's, and the note of a server.
std::uint64_t layout_of_resumable_requests();

}  // namespace pagoda::io
