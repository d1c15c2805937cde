#pragma once

/// The JSON-lines protocol, version 1 (docs: PROTOCOL). Plain functions from lines to typed messages and from events to
/// lines; no sockets, no actors.

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
#include "io/wire/wire_error.hpp"

namespace pagoda::json_lines {

using namespace wire;

inline constexpr int kProtocolVersion = 1;
inline constexpr std::size_t kMaxIdBytes = 128;
inline constexpr std::size_t kMaxDepth = 64;

/// Absent where the client gave none; only generate and cancel must give one.
using ClientId = std::optional<std::string>;

struct GenerateOp {
  std::string id;
  std::shared_ptr<GenerateRequest> request;
  bool timing = false;  ///< `done` is to tell why it was slow
  /// How answers to a conversation are taken apart; null: they are texts.
  std::shared_ptr<const chat::AnswerReading> reading = nullptr;
  std::size_t model = 0;  ///< by its place among LineModels, here and in the others
};
struct CancelOp {
  std::string id;
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
  std::string text;  ///< of the conversation, in the model's chat template
};
struct ModelOp {
  ClientId id;
  std::size_t model = 0;
};
struct StatsOp {
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

using ClientMessage =
    std::variant<GenerateOp, CancelOp, TokenizeOp, DetokenizeOp, ApplyTemplateOp, ModelOp, StatsOp, PingOp, AuthOp>;

/// Why a line was refused, with its id when that could be read.
struct RefusedLine {
  ClientId id;
  WireError error;
};

/// A model that lines may be for.
struct LineModel {
  std::vector<std::string> names;           ///< by which a line may name it in `model`
  const chat::ChatPrompts* chat = nullptr;  ///< makes the prompts of conversations; null: it has no chat template
};
using LineModels = std::span<const LineModel>;

/// Reads one line (without its line end). Shape and types are checked here: an unknown or repeated field, a wrong type,
/// an integer that does not fit 64 bits. Ranges are checked later, by the request router, which also fills the fields
/// that the line leaves open. `models`: at least one; where there are several, a line names the one that it is for.
/// Errors: invalid_json, invalid_request (param names the field), unknown_op.
tl::expected<ClientMessage, RefusedLine> parse_line(std::string_view line, LineModels models);
/// Where there is one model, without a name.
tl::expected<ClientMessage, RefusedLine> parse_line(std::string_view line, const chat::ChatPrompts* prompts = nullptr);

/// A `generate` object on its own, as a line of a prompt file: its `id` may be absent, and a field that is absent has
/// the value of `defaults` (whose prompt is not looked at).
struct GenerateObject {
  ClientId id;
  GenerateRequest request;
  bool timing = false;
  std::shared_ptr<const chat::AnswerReading> reading = nullptr;  ///< as of GenerateOp
};
tl::expected<GenerateObject, RefusedLine> parse_generate_object(std::string_view line, const GenerateRequest& defaults,
                                                                const chat::ChatPrompts* prompts = nullptr);

/// What a client is told of a request that the engine refuses: tools ask for what they do in a field of their own,
/// unless its structured_outputs go along with them.
WireError request_error(Error error, const chat::AnswerReading* reading);

// Events. Each appends one whole line, with its line end.

void append_delta(std::string& out, std::string_view id, const SequenceDelta& delta);
/// A call in the answer at `index`.
void append_tool_call(std::string& out, std::string_view id, std::int32_t index, const chat::Answer::Part& call);
/// `timing`: with all that the client may ask for of it, else only the times. With a `reading` each output has the
/// message that it is.
void append_done(std::string& out, std::string_view id, const RequestResult& result, bool timing = false,
                 const chat::AnswerReading* reading = nullptr);
/// A null id says that the line's id could not be read or that the error is not about one request.
void append_error(std::string& out, const ClientId& id, const WireError& error);
void append_tokens(std::string& out, const ClientId& id, const TokenIds& token_ids);
void append_text(std::string& out, const ClientId& id, std::string_view text);
void append_model(std::string& out, const ClientId& id, const ModelInfo& model);
void append_stats(std::string& out, const ClientId& id, const EngineStats& stats);
void append_pong(std::string& out, const ClientId& id, std::string_view version);
void append_ok(std::string& out, const ClientId& id);

}  // namespace pagoda::json_lines
