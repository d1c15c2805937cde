#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/models/rank_slices.hpp"
#include "io/device_link/messages.hpp"
#include "kernels/communicator.hpp"

namespace pagoda::device_link {

/// Checks the order of the messages in which a stage passes its rows to the next one: the pieces of a step's rows come
/// one after the other, and steps in increasing order.
class StageRowsChecks {
 public:
  /// `max_floats`: maximum number of floats that the stages pass in a step.
  explicit StageRowsChecks(std::int64_t max_floats) : max_floats_(max_floats) {}

  /// Returns whether the message may come next.
  bool take(const StageRows& rows);
  /// Returns whether the last message that was taken is the last one of its step.
  bool has_all_rows() const { return num_floats_ == count_; }

 private:
  std::int64_t max_floats_;
  StepId step_ = 0;              // of the last message
  std::int64_t count_ = 0;       // floats in the rows of the step
  std::int64_t num_floats_ = 0;  // floats that have come
};

/// Connects the stage of a worker that has joined from another host with the other stages, which are on hosts of their
/// own: the engine passes rows from one to the next (StageRelay). A stage has one rank.
///
/// A sender does not wait: the engine plans no more steps than there are stages before results come. So at most the
/// rows of so many steps are in memory. A stage that has left is not noticed here: then its process ends, and the
/// engine ends the processes of all stages.
class StageLink : public std::enable_shared_from_this<StageLink> {
 public:
  /// Sends a message to the engine. Any thread.
  using Send = std::function<void(StageRows rows)>;

  /// `max_floats`: maximum number of floats that a stage passes in a step.
  StageLink(const models::RankPlace& place, std::int64_t max_floats, Send send)
      : place_(place), send_(std::move(send)), checks_(max_floats) {}

  /// Takes a message of the previous stage. Returns false if no stage sends such a message. One thread at a time.
  bool take(const StageRows& rows);
  /// Returns the connection of the stage, which keeps the link alive. There is one at a time.
  std::unique_ptr<kernels::Communicator> communicator();

 private:
  class Connection;
  struct Received {
    StepId step = 0;
    bool has_failed = false;  ///< whether the previous stage could not compute the step; then there are no rows
    std::vector<float> rows;
  };

  /// Returns the first message of the step or of a later one. A message of a later step stays. Blocks until there is
  /// one; returns nothing if the stage has left.
  std::optional<Received> wait_for(StepId step);
  /// Forgets the messages of steps up to `last`.
  void drop(StepId last);
  void leave();

  const models::RankPlace place_;
  const Send send_;
  StageRowsChecks checks_;  // used by take() only, as the next field
  std::vector<float> incomplete_;
  std::mutex mutex_;  // guards the fields below
  std::condition_variable has_changed_;
  std::deque<Received> received_;
  bool has_left_ = false;
};

}  // namespace pagoda::device_link
