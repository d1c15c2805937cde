#include "io/http/ollama/answers.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "io/wire/output_fields.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::JsonWriter;
using wire::write_token;

std::int64_t nanoseconds(double ms) {
  return std::llround(std::max(ms, 0.0) * 1e6);
}

/// Replaces line ends in JSON by spaces. Valid JSON has line ends only between its tokens.
std::string in_one_line(std::string json) {
  std::ranges::replace(json, '\n', ' ');
  return json;
}

class Writer final : public GenerationWriter {
 public:
  explicit Writer(AnswerOptions options) : options_(std::move(options)), parser_(options_.reading.parser()) {}

  std::string_view stream_content_type() const override { return "application/x-ndjson"; }

  void delta(std::string& out, std::size_t, const SequenceDelta& delta) override {
    parser_.feed(delta.text, events_);
    write_piece(out, &delta.logprobs);
  }

  void done(std::string& out, std::size_t, const RequestResult& result) override {
    parser_.finish(events_);
    if (!events_.empty()) write_piece(out, nullptr);
    line(out, [&](JsonWriter& json) {
      write_text(json, {});
      write_end(json, result);
    });
  }

  void end(std::string&) override {}

  void error(std::string& out, const ErrorAnswer& error) override {
    out += error_body(ErrorStyle::ollama, error);
    out += '\n';
  }

  void whole(std::string& out, std::span<const RequestResult> results) override {
    const auto& result = results.front();
    const auto& output = result.outputs.front();
    JsonWriter json(out);
    open(json);
    write_text(json, chat::read_answer(options_.reading, output.text));
    write_end(json, result);
    if (output.logprobs) write_logprobs(json, *output.logprobs);
    json.close_object();
  }

  void write_load(std::string& out, std::string_view reason) const {
    JsonWriter json(out);
    open(json);
    write_text(json, {});
    json.field("done", true).field("done_reason", reason).close_object();
  }

 private:
  void open(JsonWriter& json) const {
    json.open_object().field("model", options_.model);
    json.field("created_at", timestamp(std::chrono::system_clock::now()));
  }

  template <class Write>
  void line(std::string& out, Write write) const {
    JsonWriter json(out);
    open(json);
    write(json);
    json.close_object();
    out += '\n';
  }

  /// Writes the events since the last piece. Keeps the events of a call until the call is complete.
  void write_piece(std::string& out, const Logprobs* logprobs) {
    chat::Answer piece;
    for (const auto& event : events_) {
      using Kind = chat::AnswerEvent::Kind;
      const bool is_of_call = event.kind != Kind::thinking && event.kind != Kind::content;
      if (is_of_call) {
        call_.push_back(event);
      } else {
        piece.add(event);
      }
      if (event.kind != Kind::call_end) continue;
      for (const auto& part : std::exchange(call_, {})) piece.add(part);
    }
    events_.clear();
    line(out, [&](JsonWriter& json) {
      write_text(json, piece);
      json.field("done", false);
      if (logprobs != nullptr) write_logprobs(json, *logprobs);
    });
  }

  void write_text(JsonWriter& json, const chat::Answer& answer) const {
    if (options_.kind == AnswerKind::generate) {
      json.field("response", answer.content());
      write_thinking(json, answer);
      return;
    }
    json.key("message").open_object().field("role", "assistant").field("content", answer.content());
    write_thinking(json, answer);
    write_calls(json, answer.calls());
    json.close_object();
  }

  static void write_thinking(JsonWriter& json, const chat::Answer& answer) {
    if (const auto thinking = answer.thinking(); !thinking.empty()) json.field("thinking", thinking);
  }

  static void write_calls(JsonWriter& json, const std::vector<chat::Answer::Part>& calls) {
    bool is_first = true;
    for (const auto& call : calls) {
      if (!nlohmann::json::accept(call.text)) continue;  // cut off by a limit
      if (std::exchange(is_first, false)) json.key("tool_calls").open_array();
      json.open_object().key("function").open_object().field("name", call.name);
      json.key("arguments").raw(in_one_line(call.text)).close_object().close_object();
    }
    if (!is_first) json.close_array();
  }

  static void write_end(JsonWriter& json, const RequestResult& result) {
    const auto& timing = result.timing;
    const auto queued = nanoseconds(timing.queue_ms);
    const auto first = nanoseconds(timing.ttft_ms - timing.queue_ms);
    const auto rest = nanoseconds(timing.total_ms - timing.ttft_ms);
    json.field("done", true).field("done_reason", to_string(result.outputs.front().finish_reason));
    json.field("total_duration", queued + first + rest).field("load_duration", queued);
    json.field("prompt_eval_count", result.usage.prompt_tokens).field("prompt_eval_duration", first);
    json.field("eval_count", result.usage.completion_tokens).field("eval_duration", rest);
  }

  void write_logprobs(JsonWriter& json, const Logprobs& logprobs) const {
    if (!options_.logprobs || logprobs.empty()) return;
    json.key("logprobs").open_array();
    for (const LogprobEntry& entry : logprobs) {
      json.open_object();
      write_token(json, logprobs, entry);
      if (options_.num_top > 0) {
        json.key("top_logprobs")
            .array(entry.top.first(std::min(options_.num_top, entry.top.size())),
                   [&](JsonWriter& list, const TokenLogprob& candidate) {
                     list.open_object();
                     write_token(list, logprobs, candidate);
                     list.close_object();
                   });
      }
      json.close_object();
    }
    json.close_array();
  }

  AnswerOptions options_;
  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  std::vector<chat::AnswerEvent> call_;  ///< events of an incomplete call
};

}  // namespace

std::unique_ptr<GenerationWriter> make_writer(AnswerOptions options) {
  return std::make_unique<Writer>(std::move(options));
}

std::string loaded_answer(const AnswerOptions& options, std::string_view reason) {
  std::string out;
  Writer(options).write_load(out, reason);
  return out;
}

std::string timestamp(std::chrono::system_clock::time_point time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - second);
  return fmt::format("{:%FT%T}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(second)), rest.count());
}

}  // namespace pagoda::http::ollama
