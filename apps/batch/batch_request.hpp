#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_set>

#include <tl/expected.hpp>

#include "apps/batch/line_reader.hpp"
#include "io/http/error_body.hpp"
#include "io/http/local_api.hpp"

namespace pagoda::apps::batch {

/// One line of a batch in OpenAI's format: {"custom_id": ..., "method": "POST", "url": ..., "body": {...}}.
struct BatchRequest {
  std::string id;                        ///< hash of the line and of its position among the requests
  std::optional<std::string> custom_id;  ///< absent if the line has none
  tl::expected<http::LocalRequest, http::ErrorAnswer> request;
};

/// Parses lines into requests, in their order. Knows the custom_ids of earlier lines.
class BatchParser {
 public:
  explicit BatchParser(std::size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  BatchRequest parse(const LineReader::Line& line);

  /// Returns the id that parse() will give to the next line, without parsing it.
  std::string id_of_next(const LineReader::Line& line) const;

 private:
  tl::expected<http::LocalRequest, http::ErrorAnswer> read(const LineReader::Line& line, BatchRequest& out);

  std::size_t max_line_bytes_;
  std::size_t num_parsed_ = 0;
  std::unordered_set<std::string> custom_ids_;
};

/// Returns the result of a request as a line with its line end: {"id", "custom_id", "response": {"status_code",
/// "request_id", "body"}, "error"}. If the status is not 200, `error` has the code and the message of the body.
std::string result_line(const BatchRequest& request, unsigned status, std::string body);
std::string result_line(const BatchRequest& request, const http::ErrorAnswer& error);

/// Returns the beginning of a result_line for the request with this id. kEndOfSuccess is the end of such a line if the
/// request was answered.
std::string result_begin(const std::string& id);
inline constexpr const char* kEndOfSuccess = R"(,"error":null})";

}  // namespace pagoda::apps::batch
