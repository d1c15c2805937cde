#pragma once

#include <cstdint>
#include <string>

#include "apps/batch/batch_request.hpp"
#include "apps/batch/line_reader.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps::batch {

/// The file that results are written to, one a line, in the order of their requests. It belongs to one run at a time.
class BatchResults {
 public:
  /// `path` - is standard output. The results of an interrupted run stay unless `overwrites`. Errors: io_failed;
  /// bad_config where another run has the file open.
  static Result<BatchResults> open(const std::string& path, bool overwrites);
  BatchResults(BatchResults&& other) noexcept;
  BatchResults& operator=(BatchResults&&) = delete;
  ~BatchResults();

  /// Takes the requests of `lines` whose results are there already, and cuts off a last result that is not whole.
  /// Error: bad_config where a result is not that of its request.
  Status skip_done(LineReader& lines, BatchParser& parser);

  /// Writes a whole line before it returns. Error: io_failed.
  Status write(const std::string& line);

  std::int64_t num_done() const { return num_done_; }
  /// How many of these are errors.
  std::int64_t num_failed() const { return num_failed_; }
  const std::string& path() const { return path_; }

 private:
  BatchResults(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  void count(const std::string& line);

  int fd_;
  std::string path_;
  std::int64_t num_done_ = 0;
  std::int64_t num_failed_ = 0;
};

}  // namespace pagoda::apps::batch
