#include "apps/batch/batch_results.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pagoda::apps::batch {
namespace {

bool is_regular(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

}  // namespace

BatchResults::BatchResults(BatchResults&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      num_done_(other.num_done_),
      num_failed_(other.num_failed_) {}

BatchResults::~BatchResults() {
  if (fd_ > STDERR_FILENO) ::close(fd_);
}

Result<BatchResults> BatchResults::open(const std::string& path, bool overwrites) {
  if (path == "-") return BatchResults(STDOUT_FILENO, path);
  constexpr mode_t kMode = 0666;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, kMode);
  BatchResults results(fd, path);
  const auto refused = [&] {
    return fail(ErrorCode::io_failed, "cannot write the output file " + path + ": " + std::strerror(errno),
                "output_file");
  };
  if (fd < 0) return refused();
  if (!is_regular(fd)) return results;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(ErrorCode::bad_config, "another run writes to the output file " + path, "output_file");
  }
  if (overwrites && ::ftruncate(fd, 0) != 0) return refused();
  return results;
}

Status BatchResults::skip_done(LineReader& lines, BatchParser& parser) {
  if (fd_ <= STDERR_FILENO || !is_regular(fd_)) return {};
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::bad_config, path_ + why + ": give another output file, or --overwrite to replace this one",
                "output_file");
  };
  std::ifstream file(path_, std::ios::binary);
  off_t whole_bytes = 0;
  LineReader::Line line;
  for (std::string result; std::getline(file, result);) {
    const bool is_cut = file.eof();  // an interrupted run has not finished this line
    if (!lines.wait_for_next(line)) {
      return refused(" has more results than the input file has requests");
    }
    const auto begin = result_begin(parser.id_of_next(line)).substr(0, is_cut ? result.size() : std::string::npos);
    if (!result.starts_with(begin) || (!is_cut && !result.ends_with('}'))) {
      return refused(" line " + std::to_string(num_done_ + 1) + " is not the result of line " +
                     std::to_string(line.number) + " of the input file");
    }
    if (is_cut) {
      lines.put_back(std::move(line));
      break;
    }
    parser.parse(line);  // so that the parser knows its custom_id
    count(result);
    whole_bytes += static_cast<off_t>(result.size() + 1);
  }
  struct stat facts {};
  const bool is_torn = ::fstat(fd_, &facts) != 0 || facts.st_size != whole_bytes;
  if (is_torn && ::ftruncate(fd_, whole_bytes) != 0) {
    return fail(ErrorCode::io_failed, "cannot write the output file " + path_ + ": " + std::strerror(errno),
                "output_file");
  }
  return {};
}

void BatchResults::count(const std::string& line) {
  ++num_done_;
  if (!line.ends_with(kEndOfSuccess)) ++num_failed_;
}

Status BatchResults::write(const std::string& line) {
  for (std::string_view rest = line; !rest.empty();) {
    const auto written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return fail(
          ErrorCode::io_failed,
          "cannot write to " + (path_ == "-" ? std::string("standard output") : path_) + ": " + std::strerror(errno),
          "output_file");
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  count(line.substr(0, line.size() - 1));
  return {};
}

}  // namespace pagoda::apps::batch
