#pragma once

/// Checks of a request before its body is read. Private to the server.

#include <optional>
#include <string>

#include "io/http/answer_form.hpp"
#include "io/http/request_reader.hpp"
#include "io/http/routes.hpp"
#include "io/http/server_config.hpp"

namespace pagoda::http {

/// Result of the checks of a request's head: a route, a refusal, or neither for a CORS preflight, which is answered
/// with 204.
struct Admission {
  Request request;  ///< without its body
  AnswerForm form;
  const Routes::Route* route = nullptr;
  std::optional<ErrorAnswer> refusal;
  Pairs headers;  ///< headers of the refusal or of the preflight's answer
  bool expects_continue = false;
};

/// Returns a new id for a request that brought no usable id.
std::string new_request_id();

/// Checks requests against the routes, the keys and the allowed origin. Both arguments must outlive the gate.
class Gate {
 public:
  Gate(const ServerConfig& config, const Routes& routes) : config_(config), routes_(routes) {}

  /// Checks a request and moves the headers out of `head`.
  Admission admit(RequestHead& head) const;

 private:
  void look_up(Admission& admission, const std::string& raw_path) const;
  void check_page(Admission& admission) const;
  void check_key(Admission& admission) const;
  void check_body(Admission& admission, const RequestHead& head) const;
  Pairs cors_headers(std::string_view origin) const;

  const ServerConfig& config_;
  const Routes& routes_;
};

}  // namespace pagoda::http
