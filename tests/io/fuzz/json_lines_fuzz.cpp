// libFuzzer entry for the JSON-lines parser: any bytes are either a message or a refusal that can be written as a line.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/json_lines/protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto message = pagoda::json_lines::parse_line(text);
  if (!message) {
    std::string line;
    pagoda::json_lines::append_error(line, message.error().id, message.error().error);
    if (!nlohmann::json::accept(line)) std::abort();
  }
  return 0;
}
