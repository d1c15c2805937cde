#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/http/exchange.hpp"
#include "io/serving/resumable_streams.hpp"

namespace pagoda::http {

/// Answers the exchange with the events of a stream, from number `from` to the stream's end, as fast as the client
/// reads. Replaces the stream's current reader. I/O thread.
void follow_stream(std::shared_ptr<Exchange> exchange, std::shared_ptr<serving::ResumableStream> stream,
                   std::uint64_t from);

}  // namespace pagoda::http
