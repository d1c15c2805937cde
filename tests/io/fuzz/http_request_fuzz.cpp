// libFuzzer entry for the reader of HTTP requests: what comes of bytes does not depend on the pieces they arrive in,
// and is a request within the limits or a refusal. The first byte chooses the pieces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "io/http/request_reader.hpp"

namespace {

using namespace pagoda::http;

constexpr std::uint64_t kMaxBodyBytes = 4096;

struct Outcome {
  unsigned status = 0;  ///< of the refusal; 0: none
  bool is_complete = false;
  std::string target;
  std::string body;

  bool operator==(const Outcome&) const = default;
};

Outcome read(const std::string& bytes, std::size_t piece) {
  RequestReader reader(kMaxBodyBytes);
  std::string input;
  bool has_head = false;
  Outcome outcome;
  for (std::size_t at = 0; at < bytes.size() && !outcome.is_complete; at += piece) {
    input += bytes.substr(at, piece);
    if (!has_head) {
      const auto head = reader.read_head(input);
      if (!head) return {head.error().status, false, {}, {}};
      has_head = *head;
    }
    if (!has_head) continue;
    const auto body = reader.read_body(input);
    if (!body) return {body.error().status, false, {}, {}};
    outcome.is_complete = *body;
  }
  if (!outcome.is_complete) return outcome;
  outcome.target = reader.head().target;
  outcome.body = reader.body();
  if (outcome.body.size() > kMaxBodyBytes || reader.head().headers.size() > RequestReader::kMaxHeaders) std::abort();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string bytes(data + 1, data + size);
  const auto whole = read(bytes, std::max<std::size_t>(bytes.size(), 1));
  const auto pieces = read(bytes, 1 + data[0] % 32);
  // Of a request that is refused, a piece may show one reason before another.
  if ((whole.status == 0) != (pieces.status == 0)) std::abort();
  if (whole.status == 0 && !(whole == pieces)) std::abort();
  return 0;
}
