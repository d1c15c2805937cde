#include "apps/batch/line_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pagoda::apps::batch {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;

}  // namespace

LineReader::LineReader(int fd, std::size_t max_bytes, double file_bytes)
    : fd_(fd), max_bytes_(max_bytes), file_bytes_(file_bytes) {}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      max_bytes_(other.max_bytes_),
      file_bytes_(other.file_bytes_),
      taken_bytes_(other.taken_bytes_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      scanned_(other.scanned_),
      is_skipping_(other.is_skipping_),
      number_(other.number_),
      is_at_end_(other.is_at_end_),
      error_(other.error_),
      put_back_(std::move(other.put_back_)) {}

LineReader::~LineReader() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
}

Result<LineReader> LineReader::open(const std::string& path, std::size_t max_bytes) {
  const auto refused = [&](int error) {
    return fail(ErrorCode::io_failed, "cannot read the input file " + path + ": " + std::strerror(error), "input_file");
  };
  const int fd = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refused(errno);
  struct stat facts {};
  const bool is_known = ::fstat(fd, &facts) == 0;
  LineReader reader(fd, max_bytes, is_known && S_ISREG(facts.st_mode) ? static_cast<double>(facts.st_size) : 0);
  if (is_known && S_ISDIR(facts.st_mode)) return refused(EISDIR);
  return reader;
}

void LineReader::read_more() {
  if (is_at_end_) return;
  buffer_.erase(0, begin_);
  scanned_ -= std::exchange(begin_, 0);
  const auto size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  const auto got = ::read(fd_, buffer_.data() + size, kReadBytes);
  buffer_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) return;
  is_at_end_ = true;
  if (got < 0) error_ = errno;
}

/// Takes `size` bytes of the buffer and the line end after them.
void LineReader::finish_line(Line& line, std::size_t size) {
  line.text.assign(buffer_, begin_, std::min(size, max_bytes_));
  line.is_too_long = size > max_bytes_;
  if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
  begin_ = scanned_ = std::min(begin_ + size + 1, buffer_.size());
  taken_bytes_ += static_cast<double>(size + 1);
}

bool LineReader::next(Line& line) {
  if (put_back_) {
    line = *std::exchange(put_back_, std::nullopt);
    return true;
  }
  for (;;) {
    const auto end = buffer_.find('\n', scanned_);
    const bool is_whole = end != std::string::npos;
    const auto size = (is_whole ? end : buffer_.size()) - begin_;
    if (!is_whole && !is_at_end_ && size <= max_bytes_) {
      scanned_ = buffer_.size();
      return false;
    }
    if (!is_whole && is_at_end_ && size == 0) return false;
    const bool was_skipping = std::exchange(is_skipping_, !is_whole && !is_at_end_);
    if (!was_skipping) ++number_;
    finish_line(line, size);
    line.number = number_;
    const bool is_blank = line.text.find_first_not_of(" \t") == std::string::npos;
    if (!was_skipping && !is_blank) return true;
  }
}

bool LineReader::wait_for_next(Line& line) {
  while (!next(line)) {
    if (is_at_end_) return false;
    pollfd input{.fd = fd_, .events = POLLIN, .revents = 0};
    ::poll(&input, 1, -1);
    read_more();
  }
  return true;
}

double LineReader::fraction() const {
  return file_bytes_ > 0 ? std::min(taken_bytes_ / file_bytes_, 1.0) : -1;
}

}  // namespace pagoda::apps::batch
