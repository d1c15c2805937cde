#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pagoda::bench_serve {

/// Splits a stream of server-sent events, in pieces of any size. Returns only the data of events.
class SseReader {
 public:
  /// Calls `on_data` with the data of every event that these bytes complete.
  void feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  void take_line(std::string_view line, const std::function<void(std::string_view data)>& on_data);

  std::string line_;  ///< beginning of a line that has not ended
  std::string data_;
  bool has_data_ = false;
  bool was_return_ = false;  ///< whether the last byte was a CR; an LF after it belongs to the same line end
};

}  // namespace pagoda::bench_serve
