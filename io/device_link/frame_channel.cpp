#include "io/device_link/frame_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/clock.hpp"

namespace pagoda::device_link {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

std::size_t length_of(const std::byte* header) {
  std::size_t length = 0;
  for (unsigned i = 0; i < 4; ++i) length |= static_cast<std::size_t>(header[i]) << (8 * i);
  return length;
}

int poll_timeout(const std::optional<TimeUs>& wake_at) {
  if (!wake_at) return -1;
  const TimeUs left_ms = (*wake_at - actors::now_us() + 999) / 1000;
  return static_cast<int>(std::clamp<TimeUs>(left_ms, 0, INT_MAX));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<std::unique_ptr<FrameChannel>> FrameChannel::create(Descriptor socket, std::size_t longest) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  Descriptor wakes(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) < 0 || wakes.get() < 0) {
    return fail(ErrorCode::io_failed, std::string("the link to a worker process: ") + std::strerror(errno));
  }
  return std::unique_ptr<FrameChannel>(new FrameChannel(std::move(socket), std::move(wakes), longest));
}

void FrameChannel::fill_header(std::vector<std::byte>& frame) {
  const std::size_t length = frame.size() - kHeaderBytes;
  for (unsigned i = 0; i < kHeaderBytes; ++i) frame[i] = static_cast<std::byte>(length >> (8 * i));
}

void FrameChannel::send_frame(std::vector<std::byte> frame) {
  const std::size_t length = frame.size() - kHeaderBytes;
  if (length > kMaxFrameBytes) {
    spdlog::error("a message to another process has {} bytes, more than the limit of {}: the link is closed", length,
                  kMaxFrameBytes);
    return close();
  }
  fill_header(frame);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    const bool was_empty = unsent_.empty();
    if (was_empty) {
      unsent_ = std::move(frame);
    } else {
      unsent_.insert(unsent_.end(), frame.begin(), frame.end());
    }
    if (!was_empty) return;  // run() already waits until it can write
    write_unsent();
    if (unsent_.empty()) return;
  }
  wake();
}

bool FrameChannel::write_unsent() {
  while (written_ < unsent_.size()) {
    const auto count =
        ::send(socket_.get(), unsent_.data() + written_, unsent_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (is_for_later(errno)) return true;
      return false;
    }
    written_ += static_cast<std::size_t>(count);
  }
  unsent_.clear();
  written_ = 0;
  return true;
}

bool FrameChannel::has_unsent() {
  const std::lock_guard lock(mutex_);
  return !unsent_.empty();
}

bool FrameChannel::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool FrameChannel::read() {
  const std::size_t before = received_.size();
  received_.resize(before + kPieceBytes);
  const auto count = ::recv(socket_.get(), received_.data() + before, kPieceBytes, MSG_DONTWAIT);
  received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  num_received_ += received_.size() - before;
  return count > 0 || (count < 0 && is_for_later(errno));
}

std::optional<FrameChannel::End> FrameChannel::take_frames(const OnFrame& on_frame) {
  while (received_.size() - taken_ >= kHeaderBytes) {
    const std::size_t length = length_of(received_.data() + taken_);
    if (length > kMaxFrameBytes) return End::damaged;  // no end sends such a frame
    if (length > longest_) {
      spdlog::error("a message from another process has {} bytes, more than the limit of {}", length, longest_);
      return End::too_long;
    }
    if (received_.size() - taken_ - kHeaderBytes < length) break;
    const std::span<const std::byte> frame(received_.data() + taken_ + kHeaderBytes, length);
    taken_ += kHeaderBytes + length;
    if (!on_frame(frame)) return End::refused;
  }
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  return std::nullopt;
}

FrameChannel::End FrameChannel::run(const OnFrame& on_frame, const BeforeWait& before_wait) {
  if (const auto end = take_frames(on_frame)) return *end;  // frames that an earlier run() has not handled
  for (;;) {
    const std::optional<TimeUs> wake_at = before_wait ? before_wait() : std::nullopt;
    if (is_closed()) return End::closed;
    const auto events = static_cast<short>(has_unsent() ? POLLIN | POLLOUT : POLLIN);
    pollfd polled[] = {{socket_.get(), events, 0}, {wakes_.get(), POLLIN, 0}};
    if (::poll(polled, 2, poll_timeout(wake_at)) < 0 && errno != EINTR) return End::closed;
    if ((polled[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      if (::read(wakes_.get(), &count, sizeof count) < 0) continue;
    }
    if ((polled[0].revents & POLLOUT) != 0) {
      const std::lock_guard lock(mutex_);
      if (!write_unsent()) return End::closed;
    }
    if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      if (!read()) return End::closed;
      if (const auto end = take_frames(on_frame)) return *end;
    }
  }
}

void FrameChannel::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake();
}

void FrameChannel::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wakes_.get(), &one, sizeof one);
}

}  // namespace pagoda::device_link
