#pragma once

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "actors/retry_on_bad_alloc.hpp"

namespace pagoda::serving {

/// From a worker thread: runs `then(job)` on the I/O thread, where what the job holds also ends. Its client waits for
/// it, so it is not lost for want of memory.
template <class Job, class Then>
void post_result(boost::asio::io_context& io, const std::shared_ptr<Job>& job, Then then) {
  actors::retry_on_bad_alloc([&] {
    boost::asio::post(io, [job, then] {
      Job done = std::move(*job);
      then(done);
    });
  });
}

}  // namespace pagoda::serving
