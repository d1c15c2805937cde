#include "io/device_link/stage_link.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace pagoda::device_link {
namespace {

/// Floats in a message. The engine passes each on as it comes, so that the two ways of long rows overlap.
constexpr std::int64_t kPieceFloats = 1 << 16;

std::int64_t num_floats(const StageRows& rows) {
  return static_cast<std::int64_t>(rows.bytes.size() / sizeof(float));
}

}  // namespace

bool StageRowsChecks::take(const StageRows& rows) {
  const bool is_next_piece = !has_all_rows();
  const bool is_in_order = is_next_piece ? rows.step == step_ && rows.count == count_ : rows.step > step_;
  const std::int64_t first = is_next_piece ? num_floats_ : 0;
  if (!is_in_order || rows.count < 0 || rows.count > max_floats_ || rows.bytes.size() % sizeof(float) != 0)
    return false;
  if (rows.has_failed && (rows.count > 0 || !rows.bytes.empty())) return false;
  if (rows.count > 0 && rows.bytes.empty()) return false;
  if (num_floats(rows) > rows.count - first) return false;
  step_ = rows.step;
  count_ = rows.count;
  num_floats_ = first + num_floats(rows);
  return true;
}

bool StageLink::take(const StageRows& rows) {
  if (place_.is_in_first_stage() || !checks_.take(rows)) return false;
  const std::size_t before = incomplete_.size();
  if (before == 0) incomplete_.reserve(static_cast<std::size_t>(rows.count));
  incomplete_.resize(before + static_cast<std::size_t>(num_floats(rows)));
  if (!rows.bytes.empty()) std::memcpy(incomplete_.data() + before, rows.bytes.data(), rows.bytes.size());
  if (!checks_.has_all_rows()) return true;
  {
    const std::lock_guard lock(mutex_);
    received_.push_back({rows.step, rows.has_failed, std::exchange(incomplete_, {})});
  }
  has_changed_.notify_all();
  return true;
}

void StageLink::drop(StepId last) {
  const std::lock_guard lock(mutex_);
  while (!received_.empty() && received_.front().step <= last) received_.pop_front();
}

void StageLink::leave() {
  {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
  }
  has_changed_.notify_all();
}

std::optional<StageLink::Received> StageLink::wait_for(StepId step) {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_changed_.wait(lock, [&] { return has_left_ || !received_.empty(); });
    if (has_left_) return std::nullopt;
    const StepId first = received_.front().step;
    if (first > step) return Received{.step = first, .has_failed = true, .rows = {}};
    Received message = std::move(received_.front());
    received_.pop_front();
    if (first == step) return message;
  }
}

class StageLink::Connection final : public kernels::Communicator {
 public:
  explicit Connection(std::shared_ptr<StageLink> link) : link_(std::move(link)) {}

  int rank() const override { return 0; }
  int num_ranks() const override { return 1; }
  int stage() const override { return link_->place_.stage; }
  int num_stages() const override { return link_->place_.num_stages; }

  Status begin_step(std::int64_t step) override {
    step_ = static_cast<StepId>(step);
    has_failed_ = false;
    has_sent_ = link_->place_.is_in_last_stage();
    return check_own();
  }

  void fail_step() override {
    has_failed_ = true;
    link_->drop(step_);
    if (std::exchange(has_sent_, true)) return;
    link_->send_({.step = step_, .count = 0, .has_failed = true, .bytes = {}});
  }

  void leave() override { link_->leave(); }

  float* part(std::int64_t) override {
    PAGODA_ASSERT(false, "a stage of one rank has no collectives");
    return nullptr;
  }
  Status all_reduce(const kernels::Ops&, kernels::Stream&, std::int64_t, float*, bool) override {
    return fail(ErrorCode::internal, "a stage of one rank has no collectives");
  }
  Status all_gather(const kernels::Ops&, kernels::Stream&, std::int64_t, std::span<const std::int64_t>,
                    float*) override {
    return fail(ErrorCode::internal, "a stage of one rank has no collectives");
  }

  Status send(const kernels::Ops&, kernels::Stream&, std::int64_t count, const float* rows) override {
    PAGODA_ASSERT(!has_sent_ || has_failed_, "a step sends rows once, on a stage before the last one");
    if (Status able = check_own(); !able) return able;
    has_sent_ = true;
    std::int64_t first = 0;
    do {
      const std::int64_t end = std::min(count, first + kPieceFloats);
      const auto* const bytes = reinterpret_cast<const char*>(rows + first);
      link_->send_({.step = step_,
                    .count = count,
                    .has_failed = false,
                    .bytes = std::string(bytes, static_cast<std::size_t>(end - first) * sizeof(float))});
      first = end;
    } while (first < count);
    return {};
  }

  Status receive(const kernels::Ops&, kernels::Stream&, std::int64_t count, float* rows) override {
    PAGODA_ASSERT(!link_->place_.is_in_first_stage(), "a stage behind the first one receives rows");
    if (Status able = check_own(); !able) return able;
    const std::optional<Received> message = link_->wait_for(step_);
    if (message && !message->has_failed) {
      if (std::ssize(message->rows) == count) {
        std::ranges::copy(message->rows, rows);
        return {};
      }
      fail_step();
      return fail(ErrorCode::internal, name_of(stage() - 1) + " has sent rows of another size");
    }
    fail_step();
    if (!message) return check_own();
    return fail(ErrorCode::device_failed, name_of(stage() - 1) + " has not computed its part of the step");
  }

 private:
  std::string name_of(int stage) const {
    return "stage " + std::to_string(stage) + " of " + std::to_string(num_stages());
  }

  /// Returns an error if this stage has failed in the step, or has left.
  Status check_own() const {
    const bool has_left = [&] {
      const std::lock_guard lock(link_->mutex_);
      return link_->has_left_;
    }();
    if (!has_failed_ && !has_left) return {};
    return fail(ErrorCode::device_failed,
                name_of(stage()) + (has_left ? " has left the others" : " has failed in the step"));
  }

  std::shared_ptr<StageLink> link_;
  StepId step_ = 0;
  bool has_failed_ = false;
  bool has_sent_ = true;  // whether the present step has nothing more to send; there is none before step 1
};

std::unique_ptr<kernels::Communicator> StageLink::communicator() {
  return std::make_unique<Connection>(shared_from_this());
}

}  // namespace pagoda::device_link
