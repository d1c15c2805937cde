#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pagoda::bench_serve {

/// Takes a stream of server-sent events apart, wherever its bytes were cut. Of an event only its data counts.
class SseReader {
 public:
  /// Calls `on_data` with the data of every event that is complete with these bytes.
  void feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  void take_line(std::string_view line, const std::function<void(std::string_view data)>& on_data);

  std::string line_;  ///< the begin of one that has not ended
  std::string data_;
  bool has_data_ = false;
  bool was_return_ = false;  ///< the last byte was a CR, behind which an LF belongs to the same line end
};

}  // namespace pagoda::bench_serve
