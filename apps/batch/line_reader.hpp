#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::apps::batch {

/// The lines of a file, or of standard input, without blank ones. It never waits unless it is asked to, so that results
/// can be written while the next line has not come.
class LineReader {
 public:
  struct Line {
    std::string text;          ///< without its end
    std::int64_t number = 0;   ///< in the file, from 1
    bool is_too_long = false;  ///< its text is cut off
  };

  /// `path` - is standard input. Lines of more than `max_bytes` are cut off. Error: io_failed.
  static Result<LineReader> open(const std::string& path, std::size_t max_bytes);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  /// Whether `line` has been filled: with the next line of what has been read.
  bool next(Line& line);
  /// The same, but waits for the line; false at the end of the file, or where it cannot be read.
  bool wait_for_next(Line& line);

  /// The line that comes next once more.
  void put_back(Line line) { put_back_ = std::move(line); }

  /// Reads on once. It waits unless fd() is readable.
  void read_more();
  int fd() const { return fd_; }
  /// Whether everything has been read; next() may still have lines.
  bool is_at_end() const { return is_at_end_; }
  /// errno of a read that has failed, which is then the end; 0: none has.
  int error() const { return error_; }

  /// The share of the file that has become lines, 0 .. 1; negative where its size is not known.
  double fraction() const;

 private:
  LineReader(int fd, std::size_t max_bytes, double file_bytes);
  void finish_line(Line& line, std::size_t size);

  int fd_;
  std::size_t max_bytes_;
  double file_bytes_;  ///< 0: not known
  double taken_bytes_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;     ///< of the next line in the buffer
  std::size_t scanned_ = 0;   ///< up to here the buffer has no line end behind `begin_`
  bool is_skipping_ = false;  ///< the rest of a line that was too long
  std::int64_t number_ = 0;
  bool is_at_end_ = false;
  int error_ = 0;
  std::optional<Line> put_back_;
};

}  // namespace pagoda::apps::batch
