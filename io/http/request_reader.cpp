#include "io/http/request_reader.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>

#include "io/http/ascii.hpp"

namespace pagoda::http {
namespace {

namespace beast = boost::beast;
using beast::http::field;
using boost::system::error_code;

constexpr std::size_t kMaxChunkHeaderBytes = 1024;
constexpr std::size_t kMaxChunkExtensionBytes = 4096;  // sum over all chunks of one request
// Maximum number of bytes on the wire per byte of a body. Chunks of one byte take six.
constexpr std::uint64_t kMaxWireBytesPerByte = 8;
constexpr std::uint64_t kMaxWireBytesBeyond = 64 << 10;

/// Headers that must not be repeated: two of them could be interpreted in two ways, or hide one key behind another.
constexpr std::array kOnlyOnce{
    field::host,          field::content_length, field::transfer_encoding, field::content_type,
    field::authorization, field::expect,         field::content_encoding,  field::origin};

std::string_view std_view(beast::string_view text) {
  return {text.data(), text.size()};
}

/// Returns whether a request line ends with " HTTP/2.0\r\n" or another version that is not supported.
bool names_other_version(std::string_view line) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (line.size() < 11) return false;
  const auto version = line.substr(line.size() - 11, 9);
  if (version == " HTTP/1.1" || version == " HTTP/1.0") return false;
  return version.substr(0, 6) == " HTTP/" && is_digit(version[6]) && version[7] == '.' && is_digit(version[8]);
}

bool is_length(std::string_view value) {
  return !value.empty() && value.size() <= 19 &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

ErrorAnswer bad_request(std::string message) {
  return {400, std::move(message)};
}

}  // namespace

class RequestReader::Parser : public beast::http::basic_parser<true> {
 public:
  explicit Parser(std::uint64_t max_body) : max_body_bytes(max_body) {
    header_limit(kMaxRequestLineBytes + kMaxHeaderBytes + 4);
    // This class checks the limit itself. With a limit in Beast, a Content-Length above it would make the parsing of
    // the head fail, and the answer could not depend on the head. Boost 1.74 treats `none` (no limit) as a limit of 0.
    body_limit(std::numeric_limits<std::uint64_t>::max());
    eager(true);
  }

  ErrorAnswer too_long() const { return {413, "the body is longer than " + std::to_string(max_body_bytes) + " bytes"}; }

  std::uint64_t max_body_bytes;
  RequestHead head;
  std::string body;
  std::optional<ErrorAnswer> refusal;

 private:
  void refuse(error_code& ec, ErrorAnswer why) {
    refusal = std::move(why);
    ec = beast::http::error::bad_value;
  }

  void on_request_impl(Verb verb, beast::string_view, beast::string_view target, int version, error_code&) override {
    head.verb = verb;
    head.target = std::string(target.data(), target.size());
    head.is_http10 = version == 10;
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}

  void on_field_impl(field name, beast::string_view name_text, beast::string_view value, error_code& ec) override {
    if (in_body_) return refuse(ec, bad_request("trailers after a chunked body are not supported"));
    if (head.headers.size() >= kMaxHeaders) {
      return refuse(ec, {431, "the request has more than " + std::to_string(kMaxHeaders) + " headers"});
    }
    auto key = lower_case(std_view(name_text));
    const bool only_once = std::find(kOnlyOnce.begin(), kOnlyOnce.end(), name) != kOnlyOnce.end() || key == "x-api-key";
    const auto earlier =
        std::find_if(head.headers.begin(), head.headers.end(), [&](const auto& other) { return other.first == key; });
    if (only_once && earlier != head.headers.end()) {
      // sglang-router adds its own key to the client's, which is the same one.
      if (name == field::authorization && earlier->second == std_view(value)) return;
      return refuse(ec, bad_request("the header " + key + " is repeated"));
    }
    if (name == field::content_length && !is_length(std_view(value))) {
      return refuse(ec, bad_request("Content-Length is not a number"));
    }
    if (name == field::transfer_encoding && (!equals_ignoring_case(std_view(value), "chunked") || head.is_http10)) {
      return refuse(ec, bad_request("Transfer-Encoding must be chunked, and needs HTTP/1.1"));
    }
    head.headers.emplace_back(std::move(key), std::string(value.data(), value.size()));
  }

  void on_header_impl(error_code& ec) override {
    in_body_ = true;
    const bool has_host = std::any_of(head.headers.begin(), head.headers.end(),
                                      [](const auto& header) { return header.first == "host"; });
    if (!has_host && !head.is_http10) return refuse(ec, bad_request("the header Host is missing"));
    head.keep_alive = keep_alive();
    if (const auto length = content_length()) head.content_length = *length;
    head.has_body = chunked() || head.content_length.value_or(0) > 0;
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view bytes, error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, beast::string_view extensions, error_code& ec) override {
    extension_bytes_ += extensions.size();
    const bool is_flood = extension_bytes_ > kMaxChunkExtensionBytes || extensions.size() > kMaxChunkHeaderBytes;
    if (is_flood) return refuse(ec, bad_request("the chunk extensions are too long"));
    if (size > max_body_bytes - body.size()) {
      return refuse(ec, too_long());
    }
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  bool in_body_ = false;
  std::size_t extension_bytes_ = 0;
};

RequestReader::RequestReader(std::uint64_t max_body_bytes) : parser_(std::make_unique<Parser>(max_body_bytes)) {}
RequestReader::~RequestReader() = default;

RequestHead& RequestReader::head() {
  return parser_->head;
}
std::string& RequestReader::body() {
  return parser_->body;
}
bool RequestReader::is_complete() const {
  return parser_->is_done();
}

/// Searches the received part of the head for its end and for invalid bytes. Beast would join folded lines, and would
/// wait for the end of a head that is invalid from its first byte.
std::optional<ErrorAnswer> RequestReader::scan(const std::string& input) {
  for (; scanned_ < input.size() && head_bytes_ == 0; ++scanned_) {
    const char c = input[scanned_];
    const char before = scanned_ > 0 ? input[scanned_ - 1] : '\n';
    if ((c == '\n') != (before == '\r')) return bad_request("a line of the head does not end with CR LF");
    if (c == '\0') return bad_request("the head contains a zero byte");
    if (before == '\n' && (c == ' ' || c == '\t')) return bad_request("a line of the head starts with a space");
    if (scanned_ == 0 && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')) {
      return bad_request("this is not an HTTP/1.1 request");
    }
    if (c != '\n') continue;
    if (line_bytes_ == 0) {
      line_bytes_ = scanned_ + 1;
      names_other_version_ = names_other_version(std::string_view(input).substr(0, line_bytes_));
    }
    if (scanned_ >= 3 && input.compare(scanned_ - 3, 4, "\r\n\r\n") == 0) head_bytes_ = scanned_ + 1;
  }
  if (line_bytes_ > kMaxRequestLineBytes || (line_bytes_ == 0 && scanned_ > kMaxRequestLineBytes)) {
    return ErrorAnswer{414, "the request line is longer than " + std::to_string(kMaxRequestLineBytes) + " bytes"};
  }
  if (line_bytes_ > 0 && scanned_ - line_bytes_ > kMaxHeaderBytes) {
    return ErrorAnswer{431, "the headers are longer than " + std::to_string(kMaxHeaderBytes) + " bytes"};
  }
  return {};
}

tl::expected<bool, ErrorAnswer> RequestReader::failed(const error_code& error) const {
  if (parser_->refusal) return tl::unexpected(*parser_->refusal);
  if (error == beast::http::error::body_limit) return tl::unexpected(parser_->too_long());
  if (error == beast::http::error::bad_version && names_other_version_) {
    return tl::unexpected(ErrorAnswer{505, "this server supports HTTP/1.1 and HTTP/1.0"});
  }
  return tl::unexpected(bad_request("this is not an HTTP/1.1 request: " + error.message()));
}

tl::expected<bool, ErrorAnswer> RequestReader::read_head(std::string& input) {
  if (auto problem = scan(input)) return tl::unexpected(std::move(*problem));
  if (head_bytes_ == 0) return false;
  error_code error;
  parser_->put(boost::asio::buffer(input.data(), head_bytes_), error);
  if (error || !parser_->is_header_done()) return failed(error);
  input.erase(0, head_bytes_);
  return true;
}

tl::expected<bool, ErrorAnswer> RequestReader::read_body(std::string& input) {
  while (!input.empty() && !parser_->is_done()) {
    error_code error;
    const auto taken = parser_->put(boost::asio::buffer(input), error);
    input.erase(0, taken);
    body_wire_bytes_ += taken;
    if (body_wire_bytes_ > kMaxWireBytesBeyond + kMaxWireBytesPerByte * parser_->body.size()) {
      return tl::unexpected(bad_request("the headers of the chunks take far more bytes than their data"));
    }
    if (error == beast::http::error::need_more) {
      if (input.size() > kMaxChunkHeaderBytes) return tl::unexpected(bad_request("the header of a chunk is too long"));
      break;
    }
    if (error) return failed(error);
  }
  return parser_->is_done();
}

}  // namespace pagoda::http
