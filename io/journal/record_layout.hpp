#pragma once

#include <cstdint>

namespace pagoda::io {

/// Digests of the fields of records. Records have no tags, so a build whose fields differ has other digests.

/// Returns the digest of all records.
std::uint64_t layout_of_records();
/// Returns the digest of the records that resumable requests are recovered from: the output core's, with the note of a
/// server.
std::uint64_t layout_of_resumable_requests();

}  // namespace pagoda::io
