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
  std::string id;                        ///< a hash of the line and of its place among the requests
  std::optional<std::string> custom_id;  ///< absent where the line has none
  tl::expected<http::LocalRequest, http::ErrorAnswer> request;
};

/// Makes requests of lines, in their order: it knows the custom_ids that have come before.
class BatchParser {
 public:
  explicit BatchParser(std::size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  BatchRequest parse(const LineReader::Line& line);

  /// The id of the next line. Parsing it takes longer.
  std::string id_of_next(const LineReader::Line& line) const;

 private:
  tl::expected<http::LocalRequest, http::ErrorAnswer> read(const LineReader::Line& line, BatchRequest& out);

  std::size_t max_line_bytes_;
  std::size_t num_parsed_ = 0;
  std::unordered_set<std::string> custom_ids_;
};

/// The result of a request as a line, with its end: {"id", "custom_id", "response": {"status_code", "request_id",
/// "body"}, "error"}. Where the status is not 200, `error` has the code and the message of the body.
std::string result_line(const BatchRequest& request, unsigned status, std::string body);
std::string result_line(const BatchRequest& request, const http::ErrorAnswer& error);

/// How a line of result_line begins for the request of this id, and how it ends where the request has been answered.
std::string result_begin(const std::string& id);
inline constexpr const char* kEndOfSuccess = R"(,"error":null})";

}  // namespace pagoda::apps::batch
