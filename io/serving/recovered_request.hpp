#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "io/serving/resumable_streams.hpp"

namespace pagoda::serving {

/// Server that received a request.
enum class Api : std::uint8_t { json_lines, http };
constexpr Api last_value(Api) {
  return Api::http;
}

/// The facts that a server needs, in addition to the engine's state, to continue a resumable request after a restart.
/// The ResumeNote of the request contains them.
struct RequestOrigin {
  Api api = Api::json_lines;
  StreamName name;
  std::int64_t arrival_ms = 0;  ///< time of arrival, in ms since 1970
  std::optional<std::int64_t> timeout_ms;
  // For JSON lines only:
  bool timing = false;  ///< as GenerateOp::timing
  bool stream = true;
  // For HTTP only:
  std::string path;
  std::string body;
  std::string own_id;        ///< Request::own_id
  std::int64_t created = 0;  ///< Request::created

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.api, self.name, self.arrival_ms, self.timeout_ms, self.timing, self.stream, self.path, self.body,
                 self.own_id, self.created);
  }
};

/// Maximum size of RequestOrigin::body, in bytes. A resumable request with a larger body is refused if requests are
/// recorded, so that the states of a journal stay small.
inline constexpr std::size_t kMaxOriginBytes = std::size_t{1} << 20;

/// Returns the note of a request; null if requests are not recorded (ResumeConfig::is_recorded).
std::shared_ptr<const ResumeNote> note_of(const RequestOrigin& origin, const ResumeConfig& config);
/// Returns the origin in a note; nothing if the note was not written by a server.
std::optional<RequestOrigin> origin_of(const ResumeNote& note);

/// A request of an earlier server process, which died while it served the request.
struct RecoveredRequest {
  RequestOrigin origin;
  std::shared_ptr<GenerateRequest> request;  ///< request that continues where it stopped
  std::vector<SequenceDelta> delivered;      ///< deltas that were output before; in order within each sequence
  std::string adapter_path = {};             ///< path of the adapter that `request` names
};

/// Logs that a request is not recovered, and the reason.
void log_dropped(const RequestOrigin& origin, std::string_view why);

}  // namespace pagoda::serving
