#include "io/serving/recovered_request.hpp"

#include <cstring>
#include <span>
#include <utility>

#include <spdlog/spdlog.h>

#include "engine/step/codec.hpp"
#include "io/wire/json_text.hpp"

namespace pagoda::serving {

std::shared_ptr<const ResumeNote> note_of(const RequestOrigin& origin, const ResumeConfig& config) {
  if (!config.is_recorded) return nullptr;
  const std::vector<std::byte> bytes = encode(origin);
  auto note = std::make_shared<ResumeNote>();
  note->text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  note->keep_ms = config.resume_window * 1000;
  return note;
}

std::optional<RequestOrigin> origin_of(const ResumeNote& note) {
  RequestOrigin origin;
  if (!decode(std::as_bytes(std::span(note.text)), origin)) return std::nullopt;
  return origin;
}

void log_dropped(const RequestOrigin& origin, std::string_view why) {
  std::string reason;
  wire::append_string(reason, why);  // quoted, because it may contain text of the client
  spdlog::warn("request {} cannot be recovered: {}", origin.name.quoted_id(), reason);
}

}  // namespace pagoda::serving
