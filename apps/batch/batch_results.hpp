#pragma once

#include <cstdint>
#include <string>

#include "apps/batch/batch_request.hpp"
#include "apps/batch/line_reader.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps::batch {

/// The output file, with one result a line in the order of the requests. Only one run at a time can have it open.
class BatchResults {
 public:
  /// Opens the output file. `path` - is standard output. Results of an interrupted run stay unless `overwrites`.
  /// Errors: io_failed; bad_config if another run has the file open.
  static Result<BatchResults> open(const std::string& path, bool overwrites);
  BatchResults(BatchResults&& other) noexcept;
  BatchResults& operator=(BatchResults&&) = delete;
  ~BatchResults();

  /// Reads the requests of `lines` whose results are in the file, and cuts off a last result that is not complete.
  /// Error: bad_config if a result does not belong to its request.
  Status skip_done(LineReader& lines, BatchParser& parser);

  /// Writes a whole line before it returns. Error: io_failed.
  Status write(const std::string& line);

  std::int64_t num_done() const { return num_done_; }
  /// Returns how many of the results are errors.
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
