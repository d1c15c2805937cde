#include "apps/batch/batch_run.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "apps/command.hpp"

namespace pagoda::apps::batch {
namespace {

constexpr std::size_t kMaxLiveBytes = 256 << 20;
constexpr unsigned kBusy = 503;
constexpr unsigned kFirstServerError = 500;
// A full engine takes a request later. A failing engine answers its requests before its end is reported: such an answer
// is not a result, and counts only if the engine still lives a moment later.
constexpr int kMaxTries = 30;
constexpr auto kPause = std::chrono::seconds(1);
constexpr int kPollMs = 50;

}  // namespace

WakeUp::WakeUp() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

WakeUp::~WakeUp() {
  ::close(fd_);
}

void WakeUp::call() {
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] const auto written = ::write(fd_, &kOne, sizeof kOne);  // full: a call is already pending
}

void WakeUp::reset() {
  std::uint64_t calls = 0;
  [[maybe_unused]] const auto got = ::read(fd_, &calls, sizeof calls);
}

BatchRun::BatchRun(http::LocalApi& api, LineReader& lines, BatchParser& parser, BatchResults& results,
                   BatchEvents& events, Interrupts& interrupts, std::size_t max_live)
    : api_(api),
      lines_(lines),
      parser_(parser),
      results_(results),
      events_(events),
      interrupts_(interrupts),
      max_live_(max_live),
      progress_(::isatty(STDERR_FILENO) != 0) {}

BatchRun::End BatchRun::run() {
  const auto end = run_all();
  if (end == End::complete) {
    progress_.finish(results_.num_done(), tokens_);
  } else {
    progress_.leave();
  }
  return end;
}

BatchRun::End BatchRun::run_all() {
  for (;;) {
    if (interrupts_.take()) return End::interrupted;
    if (events_.engine_has_ended) return End::engine_has_ended;
    take_answers();
    retry();
    if (const auto written = write_ready(); !written) {
      complain(written.error().message);
      return End::failed;
    }
    start_more();
    progress_.update(lines_.fraction(), results_.num_done(), tokens_);
    if (is_input_over_ && slots_.empty()) break;
    wait();
  }
  if (lines_.error() == 0) return End::complete;
  complain(std::string("cannot read the input file: ") + std::strerror(lines_.error()));
  return End::failed;
}

bool BatchRun::has_room() const {
  return slots_.size() < max_live_ && (slots_.empty() || live_bytes_ < kMaxLiveBytes);
}

void BatchRun::start_more() {
  for (LineReader::Line line; has_room() && !is_input_over_;) {
    if (!lines_.next(line)) {
      is_input_over_ = lines_.is_at_end();
      return;
    }
    auto slot = std::make_shared<Slot>(Slot{.request = parser_.parse(line), .num_bytes = line.text.size()});
    live_bytes_ += slot->num_bytes;
    slots_.push_back(slot);
    if (slot->request.request) post(slot);
  }
}

void BatchRun::post(const SharedSlot& slot) {
  ++slot->num_tries;
  // `events_` lives longer than the API, which calls this.
  api_.post(*slot->request.request, [inbox = inbox_, slot, &events = events_](http::LocalAnswer answer) {
    {
      const std::lock_guard lock(inbox->mutex);
      inbox->answers.emplace_back(slot, std::move(answer));
    }
    events.wake_up.call();
  });
}

void BatchRun::take_answers() {
  events_.wake_up.reset();
  std::vector<std::pair<SharedSlot, http::LocalAnswer>> answers;
  {
    const std::lock_guard lock(inbox_->mutex);
    answers.swap(inbox_->answers);
  }
  for (auto& [slot, answer] : answers) {
    const bool is_failure = answer.status == http::LocalAnswer::kCutOff || answer.status >= kFirstServerError;
    slot->waits_to_retry = answer.status == kBusy && slot->num_tries < kMaxTries;
    slot->due = is_failure ? Clock::now() + kPause : Clock::time_point();
    if (is_failure) ++num_delayed_;
    tokens_ += answer.completion_tokens;
    slot->answer = std::move(answer);
  }
}

void BatchRun::retry() {
  if (num_delayed_ == 0) return;
  const auto now = Clock::now();
  for (const auto& slot : slots_) {
    if (slot->due == Clock::time_point() || slot->due > now) continue;
    slot->due = {};
    --num_delayed_;
    if (!std::exchange(slot->waits_to_retry, false)) continue;
    slot->answer.reset();
    post(slot);
  }
}

Status BatchRun::write_ready() {
  while (!slots_.empty()) {
    const auto slot = slots_.front();
    const auto& request = slot->request;
    if (request.request && (!slot->answer || slot->due != Clock::time_point())) return {};
    std::string line;
    if (!request.request) {
      line = result_line(request, request.request.error());
    } else if (slot->answer->status == http::LocalAnswer::kCutOff) {
      line = result_line(request, http::ErrorAnswer{kFirstServerError, "the answer is incomplete"});
    } else {
      line = result_line(request, slot->answer->status, std::move(slot->answer->body));
    }
    if (auto written = results_.write(line); !written) return written;
    live_bytes_ -= slot->num_bytes;
    slots_.pop_front();
  }
  return {};
}

/// Waits for an answer, a line or an interrupt, or until a request is due.
void BatchRun::wait() {
  const bool wants_input = has_room() && !is_input_over_;
  std::array<pollfd, 3> sources{{{.fd = events_.wake_up.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = interrupts_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = wants_input ? lines_.fd() : -1, .events = POLLIN, .revents = 0}}};
  ::poll(sources.data(), sources.size(), num_delayed_ > 0 ? kPollMs : -1);
  if (sources[2].revents != 0) lines_.read_more();
}

}  // namespace pagoda::apps::batch
