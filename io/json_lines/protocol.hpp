#pragma once

/// The JSON-lines protocol, version 1 (docs/json-lines.md). Functions that turn lines into typed messages and events
/// into lines; without sockets and actors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/stats.hpp"
#include "io/chat/answer_reading.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/serving/served_adapters.hpp"
#include "io/wire/wire_error.hpp"

namespace pagoda::json_lines {

using namespace wire;

inline constexpr int kProtocolVersion = 1;
inline constexpr std::size_t kMaxIdBytes = 128;
inline constexpr std::size_t kMaxDepth = 64;

/// Id that a line gives; absent if the line has none. Only generate, cancel and attach require an id.
using ClientId = std::optional<std::string>;

struct GenerateOp {
  std::string id;
  std::shared_ptr<GenerateRequest> request;
  bool timing = false;  ///< whether the event `done` has all timing facts; if not, only the times
  /// Parser settings for answers to a conversation; null: answers are plain texts.
  std::shared_ptr<const chat::AnswerReading> reading = nullptr;
  std::size_t model = 0;  ///< index into LineModels, here and in the other ops
};
struct CancelOp {
  std::string id;
};
struct AttachOp {
  std::string id;
  std::int64_t from = 0;  ///< number of the first event that the client wants
};
struct TokenizeOp {
  ClientId id;
  std::string text;
  bool add_special_tokens = true;
  std::size_t model = 0;
};
struct DetokenizeOp {
  ClientId id;
  std::vector<std::int64_t> token_ids;
  bool skip_special_tokens = true;
  std::size_t model = 0;
};
struct ApplyTemplateOp {
  ClientId id;
  std::string text;  ///< conversation rendered with the model's chat template
};
struct ModelOp {
  ClientId id;
  std::size_t model = 0;
};
struct StatsOp {
  ClientId id;
  std::size_t model = 0;
};
/// Loads or unloads an adapter. Needs an admin key.
struct ChangeAdapterOp {
  ClientId id;
  std::string name;
  std::optional<std::string> path;  ///< path of an adapter to load; absent: unload
  std::size_t model = 0;
};
struct AdaptersOp {
  ClientId id;
  std::size_t model = 0;
};
struct PingOp {
  ClientId id;
};
struct AuthOp {
  ClientId id;
  std::string key;
};

using ClientMessage = std::variant<GenerateOp, CancelOp, AttachOp, TokenizeOp, DetokenizeOp, ApplyTemplateOp, ModelOp,
                                   StatsOp, ChangeAdapterOp, AdaptersOp, PingOp, AuthOp>;

/// Error of a refused line, with its id if the id could be read.
struct RefusedLine {
  ClientId id;
  WireError error;
};

/// A model that lines may use.
struct LineModel {
  std::vector<std::string> names;                     ///< names for the field `model` of a line
  const chat::ChatPrompts* chat = nullptr;            ///< makes the prompts of conversations; null: no chat template
  const serving::ServedAdapters* adapters = nullptr;  ///< adapters that lines may name; null: none
};
using LineModels = std::span<const LineModel>;

/// Parses one line (without its line end). Refuses an unknown or repeated field, a wrong type, and an integer that does
/// not fit 64 bits. The request router checks ranges later, and fills the fields that the line leaves open. `models`:
/// at least one; if there are several, a line must name its model or an adapter. `model` may be the name of an adapter.
/// Errors: invalid_json, invalid_request (param names the field), unknown_op.
tl::expected<ClientMessage, RefusedLine> parse_line(std::string_view line, LineModels models);
/// Like the function above, for one model that has no name. Lines must not name a model. `prompts`: null: no chat
/// template.
tl::expected<ClientMessage, RefusedLine> parse_line(std::string_view line, const chat::ChatPrompts* prompts = nullptr);

/// A `generate` object, parsed from a line of a prompt file. Its `id` may be absent, and an absent field has the value
/// of `defaults` (whose prompt is ignored).
struct GenerateObject {
  ClientId id;
  GenerateRequest request;
  bool timing = false;
  std::shared_ptr<const chat::AnswerReading> reading = nullptr;  ///< as GenerateOp::reading
};
tl::expected<GenerateObject, RefusedLine> parse_generate_object(std::string_view line, const GenerateRequest& defaults,
                                                                const chat::ChatPrompts* prompts = nullptr);

/// Returns the error that a client gets when the engine refuses its request. If the output constraint comes from the
/// field `tools` alone, the param structured_outputs becomes `tools`.
WireError request_error(Error error, const chat::AnswerReading* reading);

/// Returns the error for a client whose change of adapters is refused: with this protocol's names of the fields.
WireError adapter_error(Error error);

// Events. Each function appends one whole line, with its line end. Events of resumable requests have a `number`.

using EventNumber = std::optional<std::uint64_t>;

void append_delta(std::string& out, std::string_view id, const SequenceDelta& delta, EventNumber number = {});
/// Appends a tool call in the answer at `index`.
void append_tool_call(std::string& out, std::string_view id, std::int32_t index, const chat::Answer::Part& call);
/// `timing`: whether to write all timing facts; else only the times. If `reading` is not null, each output has its
/// parsed message.
void append_done(std::string& out, std::string_view id, const RequestResult& result, bool timing = false,
                 const chat::AnswerReading* reading = nullptr, EventNumber number = {});
/// `id`: absent if the line's id could not be read, or if the error does not belong to one request.
void append_error(std::string& out, const ClientId& id, const WireError& error, EventNumber number = {});
void append_tokens(std::string& out, const ClientId& id, const TokenIds& token_ids);
void append_text(std::string& out, const ClientId& id, std::string_view text);
void append_model(std::string& out, const ClientId& id, const ModelInfo& model);
void append_stats(std::string& out, const ClientId& id, const EngineStats& stats);
void append_pong(std::string& out, const ClientId& id, std::string_view version);
/// `adapters`: null: the model has none.
void append_adapters(std::string& out, const ClientId& id, const serving::ServedAdapters* adapters);
void append_ok(std::string& out, const ClientId& id);

}  // namespace pagoda::json_lines
