#pragma once

/// Reads one request from the bytes of a connection. Private to the server.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/system/error_code.hpp>
#include <tl/expected.hpp>

#include "io/http/error_body.hpp"
#include "io/http/request.hpp"

namespace pagoda::http {

/// The request line and the headers, as they came.
struct RequestHead {
  Verb verb = Verb::unknown;
  std::string target;
  bool is_http10 = false;
  Pairs headers;  ///< names in lower case
  bool keep_alive = false;
  bool has_body = false;                        ///< one with bytes in it may follow
  std::optional<std::uint64_t> content_length;  ///< none when the body is chunked, or there is none

  std::string_view header(std::string_view lower_case_name) const { return find(headers, lower_case_name); }
};

/// Boost.Beast reads the grammar. What it lets through, and a proxy before us might read in another way, is refused
/// here: folded lines, lengths that are lists or signed, codings other than chunked, repeated headers where one is
/// meant, a missing Host, trailers, floods of chunk extensions. A request that was refused leaves nothing that could be
/// read as a second one: its connection must be closed.
class RequestReader {
 public:
  static constexpr std::size_t kMaxRequestLineBytes = 8 << 10;
  static constexpr std::size_t kMaxHeaderBytes = 16 << 10;
  static constexpr std::size_t kMaxHeaders = 100;

  explicit RequestReader(std::uint64_t max_body_bytes);
  ~RequestReader();

  /// Takes the head from the front of `input` once it is whole, and then returns true. Call it again with more bytes
  /// behind those of before. Errors: 400, 414, 431, 505.
  tl::expected<bool, ErrorAnswer> read_head(std::string& input);

  /// Takes what it can of the body from the front of `input`; true when the body is complete. Errors: 400, 413.
  tl::expected<bool, ErrorAnswer> read_body(std::string& input);

  /// After a failure as far as it was read.
  RequestHead& head();
  std::string& body();
  bool is_complete() const;

 private:
  class Parser;

  std::optional<ErrorAnswer> scan(const std::string& input);
  tl::expected<bool, ErrorAnswer> failed(const boost::system::error_code& error) const;

  std::unique_ptr<Parser> parser_;
  std::size_t scanned_ = 0;           ///< bytes of the head whose line ends are good
  bool names_other_version_ = false;  ///< the request line ends with a version of HTTP that is not spoken here
  std::size_t line_bytes_ = 0;        ///< of the request line, with its end; 0 = it has not ended
  std::size_t head_bytes_ = 0;        ///< 0 = the head has not ended
  std::uint64_t body_wire_bytes_ = 0;
};

}  // namespace pagoda::http
