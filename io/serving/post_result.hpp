#pragma once

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "actors/retry_on_bad_alloc.hpp"

namespace pagoda::serving {

/// Call on a worker thread: runs `then(job)` on the I/O thread, which also destroys the contents of the job. The call
/// is posted even when memory is short (retry_on_bad_alloc), because a client waits for the result.
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
