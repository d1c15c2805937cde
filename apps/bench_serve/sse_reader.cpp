#include "apps/bench_serve/sse_reader.hpp"

namespace pagoda::bench_serve {

void SseReader::feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data) {
  while (!bytes.empty()) {
    if (was_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    was_return_ = false;
    const auto end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_ += bytes;
      return;
    }
    was_return_ = bytes[end] == '\r';
    if (line_.empty()) {
      take_line(bytes.substr(0, end), on_data);
    } else {
      line_ += bytes.substr(0, end);
      take_line(line_, on_data);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::take_line(std::string_view line, const std::function<void(std::string_view data)>& on_data) {
  constexpr std::string_view kData = "data:";
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (!line.starts_with(kData)) return;
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace pagoda::bench_serve
