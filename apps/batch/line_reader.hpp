#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::apps::batch {

/// Returns the lines of a file or of standard input, without blank lines. Only wait_for_next and read_more wait, so
/// that results can be written before the next line comes.
class LineReader {
 public:
  struct Line {
    std::string text;          ///< without its line end
    std::int64_t number = 0;   ///< in the file, counted from 1
    bool is_too_long = false;  ///< whether its text is cut off
  };

  /// Opens a file. `path` - is standard input. Lines of more than `max_bytes` are cut off. Error: io_failed.
  static Result<LineReader> open(const std::string& path, std::size_t max_bytes);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  /// Fills `line` with the next line that was read. Returns whether there was one.
  bool next(Line& line);
  /// Waits for the next line and fills `line`. Returns false at the end of the file, or if the file cannot be read.
  bool wait_for_next(Line& line);

  /// Makes `line` the next line again.
  void put_back(Line line) { put_back_ = std::move(line); }

  /// Reads once. Waits unless fd() is readable.
  void read_more();
  int fd() const { return fd_; }
  /// Returns whether everything was read; next() may still have lines.
  bool is_at_end() const { return is_at_end_; }
  /// Returns errno of a read that failed, which ends the input; 0: no read failed.
  int error() const { return error_; }

  /// Returns the share of the file that was returned as lines, 0 .. 1; negative if the file's size is not known.
  double fraction() const;

 private:
  LineReader(int fd, std::size_t max_bytes, double file_bytes);
  void finish_line(Line& line, std::size_t size);

  int fd_;
  std::size_t max_bytes_;
  double file_bytes_;  ///< 0: not known
  double taken_bytes_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;     ///< beginning of the next line in the buffer
  std::size_t scanned_ = 0;   ///< the buffer has no line end between `begin_` and here
  bool is_skipping_ = false;  ///< whether the rest of a line that was too long is skipped
  std::int64_t number_ = 0;
  bool is_at_end_ = false;
  int error_ = 0;
  std::optional<Line> put_back_;
};

}  // namespace pagoda::apps::batch
