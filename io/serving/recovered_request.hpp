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

/// Which server a request came by.
enum class Api : std::uint8_t { json_lines, http };
constexpr Api last_value(Api) {
  return Api::http;
}

/// What a server needs of a resumable request beside what the engine knows, to go on with it after a restart: the text
/// of its ResumeNote.
struct RequestOrigin {
  Api api = Api::json_lines;
  StreamName name;
  std::int64_t came_ms = 0;  ///< since 1970
  std::optional<std::int64_t> timeout_ms;
  // Of JSON lines.
  bool timing = false;  ///< as GenerateOp
  bool stream = true;
  // Of HTTP.
  std::string path;
  std::string body;
  std::string own_id;        ///< Request::own_id
  std::int64_t created = 0;  ///< Request::created

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.api, self.name, self.came_ms, self.timeout_ms, self.timing, self.stream, self.path, self.body,
                 self.own_id, self.created);
  }
};

/// Longest origin that is kept, so that the states of a journal stay small.
inline constexpr std::size_t kMaxOriginBytes = std::size_t{1} << 20;

/// The note of a request; null where none is recorded.
std::shared_ptr<const ResumeNote> note_of(const RequestOrigin& origin, const ResumeConfig& config);
/// Nothing for a note that no server wrote.
std::optional<RequestOrigin> origin_of(const ResumeNote& note);

/// A request that another process was serving when it died.
struct RecoveredRequest {
  RequestOrigin origin;
  std::shared_ptr<GenerateRequest> request;  ///< that goes on where it was
  std::vector<SequenceDelta> told;           ///< what it has brought: those of each sequence in their order
};

/// Logs that it is not taken up.
void log_dropped(const RequestOrigin& origin, std::string_view why);

}  // namespace pagoda::serving
