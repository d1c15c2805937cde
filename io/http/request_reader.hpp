#pragma once

/// Reader of one request from the bytes of a connection. Private to the server.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/system/error_code.hpp>
#include <tl/expected.hpp>

#include "io/http/error_body.hpp"
#include "io/http/request.hpp"

namespace pagoda::http {

/// The request line and the headers.
struct RequestHead {
  Verb verb = Verb::unknown;
  std::string target;
  bool is_http10 = false;
  Pairs headers;  ///< names in lower case
  bool keep_alive = false;
  bool has_body = false;                        ///< whether a body that is not empty may follow
  std::optional<std::uint64_t> content_length;  ///< nullopt if the body is chunked or absent

  std::string_view header(std::string_view lower_case_name) const { return find_value(headers, lower_case_name); }
};

/// Parses requests with Boost.Beast. Refuses requests that Beast accepts but that a proxy in front of the server might
/// parse in another way: folded lines, lengths that are lists or have a sign, codings other than chunked, repeated
/// headers that must be unique, a missing Host, trailers, and very long chunk extensions. After a refusal the
/// connection must be closed, so that the rest of the request cannot be read as a second request.
class RequestReader {
 public:
  static constexpr std::size_t kMaxRequestLineBytes = 8 << 10;
  static constexpr std::size_t kMaxHeaderBytes = 16 << 10;
  static constexpr std::size_t kMaxHeaders = 100;

  explicit RequestReader(std::uint64_t max_body_bytes);
  ~RequestReader();

  /// Removes the head from the front of `input` and returns true if the head is complete. Otherwise returns false: call
  /// again with more bytes appended to `input`. Errors: 400, 414, 431, 505.
  tl::expected<bool, ErrorAnswer> read_head(std::string& input);

  /// Removes all available bytes of the body from the front of `input`. Returns whether the body is complete. Errors:
  /// 400, 413.
  tl::expected<bool, ErrorAnswer> read_body(std::string& input);

  /// Returns the head, which is incomplete after an error.
  RequestHead& head();
  std::string& body();
  bool is_complete() const;

 private:
  class Parser;

  std::optional<ErrorAnswer> scan(const std::string& input);
  tl::expected<bool, ErrorAnswer> failed(const boost::system::error_code& error) const;

  std::unique_ptr<Parser> parser_;
  std::size_t scanned_ = 0;           ///< number of bytes of the head that are checked
  bool names_other_version_ = false;  ///< whether the request line ends with an unsupported version of HTTP
  std::size_t line_bytes_ = 0;        ///< length of the request line with its end; 0: incomplete
  std::size_t head_bytes_ = 0;        ///< length of the head; 0: incomplete
  std::uint64_t body_wire_bytes_ = 0;
};

}  // namespace pagoda::http
