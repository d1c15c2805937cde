#include "io/http/openai/completions.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "io/wire/foreign_fields.hpp"
#include "io/wire/request_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;
using wire::Json;
using wire::JsonWriter;

struct CompletionOptions {
  StreamOptions stream;
  bool echo = false;
  bool no_tokens = false;  ///< whether only the prompt is evaluated (max_tokens 0)
  bool return_token_ids = false;
  bool timing = false;
  std::optional<std::int64_t> logprobs;
  std::size_t num_top = 0;  ///< number of candidates to write for each token
  std::int64_t n = 1;
};

/// Returns whether the long fields, which are copied for each prompt, would take too much memory.
bool is_too_much(const GenerateRequest& common, std::size_t num_prompts) {
  constexpr std::size_t kMaxCopiedBytes = std::size_t{16} << 20;
  const SamplingParams& sampling = common.sampling;
  std::size_t num_bytes = sampling.structured_outputs ? sampling.structured_outputs->num_bytes() : 0;
  if (sampling.allowed_token_ids) num_bytes += sampling.allowed_token_ids->size() * sizeof(std::int64_t);
  for (const std::string& word : sampling.bad_words) num_bytes += word.size();
  return num_bytes * num_prompts > kMaxCopiedBytes;
}

/// Reads the prompts: a string, a list of ids, or a list of either.
void read_prompts(FieldReader& fields, std::vector<GenerateRequest>& requests, const GenerateRequest& common,
                  std::int64_t max_queued_requests) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.refuse("prompt", "prompt is required");
  const auto add_text = [&](const Json& text) {
    requests.push_back(common);
    requests.back().prompt = text.get<std::string>();
  };
  const auto add_ids = [&](const Json& ids, const std::string& name) {
    std::vector<std::int64_t> values;
    values.reserve(ids.size());
    for (const auto& id : ids) {
      if (!id.is_number_integer()) return fields.refuse("prompt", name + " must be a list of token ids");
      values.push_back(id.get<std::int64_t>());
    }
    requests.push_back(common);
    requests.back().prompt_token_ids = std::move(values);
  };
  if (prompt->is_string()) return add_text(*prompt);
  if (!prompt->is_array() || prompt->empty()) {
    return fields.refuse("prompt", "prompt must be a string, a list of strings, of token ids, or of such lists");
  }
  if (prompt->front().is_number()) return add_ids(*prompt, "prompt");
  if (const auto most = std::min(kMaxPrompts, max_queued_requests); std::ssize(*prompt) > most) {
    return fields.refuse("prompt", "prompt has " + std::to_string(prompt->size()) + " prompts; at most " +
                                       std::to_string(most) + " are allowed" +
                                       (most < kMaxPrompts ? " (max_queued_requests)" : ""));
  }
  if (is_too_much(common, prompt->size())) {
    return fields.refuse("prompt", "prompt has " + std::to_string(prompt->size()) +
                                       " prompts, too many for structured_outputs, allowed_token_ids and bad_words "
                                       "of this length");
  }
  for (std::size_t i = 0; i < prompt->size(); ++i) {
    const auto& item = (*prompt)[i];
    const auto name = "prompt[" + std::to_string(i) + "]";
    if (item.is_string()) {
      add_text(item);
    } else if (item.is_array()) {
      add_ids(item, name);
    } else {
      return fields.refuse("prompt", name + " must be a string or a list of token ids");
    }
  }
}

void refuse_large_fields(FieldReader& fields, const GenerateRequest& request) {
  constexpr SamplingLimits kLimits;
  const auto refuse_above = [&](const char* name, std::size_t size, std::size_t limit, const char* of) {
    if (size <= limit) return;
    fields.refuse(name, std::string(name) + " has " + std::to_string(size) + " " + of + "; at most " +
                            std::to_string(limit) + " are allowed");
  };
  refuse_above("user", request.user.size(), kMaxUserBytes, "bytes");
  refuse_above("cache_salt", request.cache_salt.size(), kMaxCacheSaltBytes, "bytes");
  refuse_above("stop", request.sampling.stop.size(), kLimits.max_stop_strings, "strings");
  for (const auto& text : request.sampling.stop) {
    refuse_above("stop", text.size(), kLimits.max_stop_string_bytes, "bytes in a string");
  }
  refuse_above("stop_token_ids", request.sampling.stop_token_ids.size(), kLimits.max_stop_token_ids, "ids");
  refuse_above("logit_bias", request.sampling.logit_bias.size(), kLimits.max_logit_bias, "entries");
  refuse_above("bad_words", request.sampling.bad_words.size(), kLimits.max_bad_words, "strings");
  for (const auto& word : request.sampling.bad_words) {
    refuse_above("bad_words", word.size(), kLimits.max_bad_word_bytes, "bytes in a string");
  }
  if (const auto& ids = request.sampling.logprob_token_ids) {
    refuse_above("logprob_token_ids", ids->size(), kLimits.max_logprob_token_ids, "ids");
  }
  if (const auto& constraint = request.sampling.structured_outputs) {
    refuse_above("structured_outputs", constraint->num_bytes(), kMaxStructuredOutputBytes, "bytes");
  }
}

std::int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// The member `logprobs` of this API: parallel lists, with the offset of each token in the choice's text, in
/// characters. The added Logprobs must outlive this object.
class LogprobLists {
 public:
  /// Adds the first token of a prompt, which has no log-probability.
  void add_first(std::string token) { tokens_.push_back({std::move(token), nullptr, {}, 0}); }
  /// Adds the tokens of a prompt or an output whose text begins at offset `begin` of the choice's text.
  void add(const Logprobs& logprobs, std::int64_t begin) {
    for (const LogprobEntry& entry : logprobs) {
      tokens_.push_back({logprobs.text_of(entry.token_id), &logprobs, entry, begin + entry.text_offset});
    }
  }

  void write(JsonWriter& json, std::size_t num_top) const {
    json.open_object();
    json.key("tokens").array(tokens_, [](JsonWriter& list, const Token& token) { list.value(token.text); });
    json.key("token_logprobs").array(tokens_, [](JsonWriter& list, const Token& token) {
      token.logprobs == nullptr ? list.null() : list.logprob(token.entry.logprob);
    });
    json.key("top_logprobs").array(tokens_, [&](JsonWriter& list, const Token& token) {
      if (token.logprobs == nullptr) {
        list.null();
      } else {
        write_top(list, token, num_top);
      }
    });
    json.key("text_offset").array(tokens_, [](JsonWriter& list, const Token& token) { list.value(token.offset); });
    json.close_object();
  }

 private:
  struct Token {
    std::string text;
    const Logprobs* logprobs;  ///< null: the token has none
    LogprobEntry entry;
    std::int64_t offset;
  };

  /// Writes the candidates as an object with unique texts. If tokens have the same text, the most probable is written.
  static void write_top(JsonWriter& json, const Token& token, std::size_t num_top) {
    json.open_object();
    std::unordered_set<std::string> written;
    const auto write = [&](std::string text, float logprob) {
      const auto [known, is_new] = written.insert(std::move(text));
      if (is_new) json.text_key(*known).logprob(logprob);
    };
    for (const auto& [id, logprob] : token.entry.top.first(std::min(token.entry.top.size(), num_top))) {
      write(token.logprobs->text_of(id), logprob);
    }
    write(token.text, token.entry.logprob);
    json.close_object();
  }

  std::vector<Token> tokens_;
};

class CompletionWriter final : public GenerationWriter {
 public:
  CompletionWriter(Head head, const CompletionOptions& options, std::size_t num_prompts)
      : head_(std::move(head)), options_(options), prompts_(num_prompts) {}

  void prompt(std::size_t prompt, std::string text, std::string first_token) override {
    prompts_[prompt] = {std::move(text), std::move(first_token)};
  }

  void begin(std::string&, std::int64_t prompt_tokens) override { chunk_usage_.begin(prompt_tokens); }

  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override {
    if (options_.no_tokens) return;
    chunk_usage_.add(delta.token_ids.size());
    const bool echoes = owes_echo(prompt, delta.index);
    append_event(out, [&](JsonWriter& json) {
      write_head(json, head_, "text_completion");
      json.key("choices").open_array().open_object();
      json.field("index", choice_of(prompt, delta.index));
      json.field("text", echoes ? prompts_[prompt].text + delta.text : delta.text);
      json.key("logprobs");
      if (options_.logprobs) {
        LogprobLists lists;
        lists.add(delta.logprobs, 0);
        lists.write(json, options_.num_top);
      } else {
        json.null();
      }
      if (options_.return_token_ids) write_token_ids(json, delta.token_ids);
      json.key("finish_reason").null().key("stop_reason").null();
      json.close_object().close_array();
      chunk_usage_.write(json);
    });
  }

  void done(std::string& out, std::size_t prompt, const RequestResult& result) override {
    add(result);
    for (const auto& output : result.outputs) {
      append_event(out, [&](JsonWriter& json) {
        write_head(json, head_, "text_completion");
        json.key("choices").open_array().open_object();
        json.field("index", choice_of(prompt, output.index));
        json.field("text", owes_echo(prompt, output.index) ? prompts_[prompt].text : std::string())
            .key("logprobs")
            .null();
        write_finish(json, output);
        json.close_object().close_array();
        if (options_.timing) write_timing(json.key("timing"), result);
        chunk_usage_.write(json);
      });
    }
  }

  void end(std::string& out) override {
    append_last_events(out, head_, "text_completion", options_.stream.include_usage ? &usage_ : nullptr);
  }

  void error(std::string& out, const ErrorAnswer& error) override { append_error_event(out, error); }

  void whole(std::string& out, std::span<const RequestResult> results) override {
    JsonWriter json(out);
    json.open_object();
    write_head(json, head_, "text_completion");
    json.key("choices").open_array();
    for (std::size_t prompt = 0; prompt < results.size(); ++prompt) {
      add(results[prompt]);
      for (const auto& output : results[prompt].outputs) {
        json.open_object();
        json.field("index", choice_of(prompt, output.index));
        write_text(json, prompt, output, results[prompt]);
        if (results[prompt].prompt_logprobs && !(options_.echo && options_.logprobs)) {
          write_prompt_logprobs(json, *results[prompt].prompt_logprobs);
        }
        write_finish(json, output);
        json.close_object();
      }
    }
    json.close_array();
    write_usage(json.key("usage"), usage_);
    if (options_.timing && results.size() == 1) {
      write_timing(json.key("timing"), results.front());
    } else if (options_.timing) {
      json.key("timing").array(results, wire::write_timing);
    }
    json.close_object();
  }

 private:
  struct Prompt {
    std::string text;
    std::string first_token;
  };

  std::size_t choice_of(std::size_t prompt, std::int64_t index) const {
    return prompt * static_cast<std::size_t>(options_.n) + static_cast<std::size_t>(index);
  }

  /// Returns whether the next event of the choice must contain the prompt: true for the first call for each choice of
  /// an echo.
  bool owes_echo(std::size_t prompt, std::int64_t index) {
    return options_.echo && echoed_.insert(choice_of(prompt, index)).second;
  }

  void add(const RequestResult& result) {
    auto usage = result.usage;
    if (options_.no_tokens) usage.completion_tokens = 0;
    add_usage(usage_, usage);
  }

  /// Adds the tokens of an echoed prompt. A first token that the tokenizer has added is not in the text and gets a
  /// negative offset, but a token that is a part of a character is in the text.
  void add_prompt(LogprobLists& lists, std::size_t prompt, const RequestResult& result) const {
    if (!options_.echo || !result.prompt_logprobs) return;
    const auto& [text, first_token] = prompts_[prompt];
    lists.add_first(first_token);
    const bool is_in_text = text.starts_with(first_token) || first_token.find("\uFFFD") != std::string::npos;
    const auto begin = is_in_text ? 0 : -num_characters(first_token);
    lists.add(*result.prompt_logprobs, begin);
  }

  /// Writes text and logprobs of a whole answer.
  void write_text(JsonWriter& json, std::size_t prompt, const SequenceResult& output,
                  const RequestResult& result) const {
    const auto generated = options_.no_tokens ? std::string() : output.text;
    json.field("text", options_.echo ? prompts_[prompt].text + generated : generated);
    json.key("logprobs");
    if (options_.logprobs) {
      LogprobLists lists;
      add_prompt(lists, prompt, result);
      const auto begin = options_.echo ? num_characters(prompts_[prompt].text) : 0;
      if (output.logprobs && !options_.no_tokens) lists.add(*output.logprobs, begin);
      lists.write(json, options_.num_top);
    } else {
      json.null();
    }
    if (options_.return_token_ids) write_token_ids(json, options_.no_tokens ? TokenIds() : output.token_ids);
  }

  Head head_;
  CompletionOptions options_;
  ChunkUsage chunk_usage_{options_.stream};
  std::vector<Prompt> prompts_;
  std::set<std::size_t> echoed_;  ///< choices whose prompt was written
  Usage usage_;
};

}  // namespace

ParsedJob parse_completion(const Json& body, Head head, std::int64_t max_queued_requests) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  CompletionOptions options;
  auto request = request_with_defaults();
  auto& sampling = request.sampling;
  fields.skip("model");
  read_fields_without_effect(fields);
  options.stream = read_stream(fields);
  read_max_tokens(fields, request);
  fields.read("logprobs", options.logprobs);
  fields.read("echo", options.echo);
  fields.read("return_token_ids", options.return_token_ids);
  fields.read("timing", options.timing);
  wire::read_api_fields(fields, request);
  wire::refuse_unless(fields, "suffix", {""}, ": this server does not fill in text before a suffix");
  wire::refuse_unless(fields, "continue_final_message", {false}, ": a prompt has no messages");
  if (options.logprobs && *options.logprobs < -1) {
    fields.refuse("logprobs", "logprobs must be at least 0, or -1: the whole vocabulary");
  }
  FieldNames names = field_names("prompt");
  add_name_of_max_tokens(fields, names);
  read_response_format(fields, sampling, names);

  // An echo without new tokens evaluates only the prompt. The engine generates at least one token, which is dropped.
  options.no_tokens = options.echo && sampling.max_tokens == 0;
  if (options.no_tokens) sampling.max_tokens = 1;
  if (options.echo && options.logprobs && !sampling.prompt_logprobs) sampling.prompt_logprobs = options.logprobs;
  if (options.echo && options.logprobs && options.stream.stream) {
    fields.refuse(
        "echo", "echo with logprobs is not supported in a stream: the logprobs of a prompt are known only at its end");
  }
  if (sampling.prompt_logprobs && options.stream.stream) {
    fields.refuse("prompt_logprobs", "prompt_logprobs is not supported with stream");
  }
  sampling.logprobs = options.logprobs;
  check_logprob_token_ids(fields, sampling, "logprobs");
  options.num_top = num_top_of(options.logprobs.value_or(0), sampling);
  options.n = sampling.n;

  GenerationJob job;
  job.stream = options.stream.stream;
  job.echo = options.echo;
  job.names = std::move(names);
  // The other fields are copied for every prompt, so they must be small. The engine checks everything later.
  refuse_large_fields(fields, request);
  if (fields.has_no_error()) read_prompts(fields, job.requests, request, max_queued_requests);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (options.n < 1) return tl::unexpected(invalid_request("n must be at least 1", "n"));
  job.writer = std::make_unique<CompletionWriter>(std::move(head), options, job.requests.size());
  return job;
}

}  // namespace pagoda::http::openai
