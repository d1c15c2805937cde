#include "io/http/ollama/options.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "io/wire/request_fields.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::FieldReader;

/// Options that only this server's flags set, at the start.
constexpr const char* kLoadOptions[] = {"num_ctx",  "num_batch", "num_gpu",    "main_gpu",   "num_thread",
                                        "num_keep", "use_mmap",  "use_mlock",  "low_vram",   "f16_kv",
                                        "numa",     "num_gqa",   "vocab_only", "logits_all", "embedding_only"};

void read_num_predict(FieldReader& options, SamplingParams& sampling) {
  constexpr std::int64_t kNoLimit = -1;
  constexpr std::int64_t kFillContext = -2;  // 0 is no limit either
  std::int64_t num_predict = kNoLimit;
  options.read("num_predict", num_predict);
  if (num_predict > 0) {
    sampling.max_tokens = num_predict;
  } else if (num_predict < kFillContext) {
    options.refuse("num_predict", "num_predict must be at least 1, or 0, -1 or -2 for the rest of the context");
  }
}

void read_seed(FieldReader& options, SamplingParams& sampling) {
  constexpr std::int64_t kRandom = -1;
  const auto* seed = options.find("seed");
  if (seed == nullptr || *seed == kRandom) return;
  options.read("seed", sampling.seed);
}

/// Sets the window of the penalties. If the client sets one of the penalties, the window is Ollama's default of 64
/// tokens. A penalty that the model recommends applies to all tokens, as in its maker's own programs.
void read_repeat_last_n(FieldReader& options, SamplingParams& sampling) {
  constexpr std::int64_t kOllamaWindow = 64;
  const bool asks_for_penalty =
      options.has("repeat_penalty") || options.has("presence_penalty") || options.has("frequency_penalty");
  if (asks_for_penalty) sampling.repeat_last_n = kOllamaWindow;
  options.read("repeat_last_n", sampling.repeat_last_n);
}

/// Replaces whole numbers with a fraction by integers (40.0 by 40), because some clients write every number with a
/// fraction.
wire::Json with_whole_numbers(wire::Json options) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  for (auto& value : options) {
    if (!value.is_number_float()) continue;
    const auto number = value.get<double>();
    if (std::abs(number) > kExact || number != std::trunc(number)) continue;
    // As in read_json, a negative number becomes a signed integer, and every other number an unsigned integer.
    value = number < 0 ? wire::Json(static_cast<std::int64_t>(number)) : wire::Json(static_cast<std::uint64_t>(number));
  }
  return options;
}

/// Refuses a sampler that is not supported unless it has one of the two values that turn it off.
void refuse_unless(FieldReader& options, const char* name, double off, double also_off) {
  if (!options.has(name)) return;
  double value = off;
  options.read(name, value);
  if (value != off && value != also_off) options.refuse(name, std::string(name) + " is not supported by this server");
}

}  // namespace

GenerateRequest request_with_defaults() {
  GenerateRequest request;
  request.open = OpenSamplingFields::all();
  request.open.max_tokens = false;
  // The engine reduces the value to the rest of the context.
  request.sampling.max_tokens = std::numeric_limits<std::int32_t>::max();
  return request;
}

void read_options(FieldReader& fields, GenerateRequest& request) {
  const auto* object = fields.read_object("options");
  if (object == nullptr) return;
  const auto whole = with_whole_numbers(*object);
  FieldReader options(whole, FieldReader::Nulls::absent, "options.");
  auto& sampling = request.sampling;
  auto& open = request.open;
  read_num_predict(options, sampling);
  read_seed(options, sampling);
  wire::read_open(options, "temperature", sampling.temperature, open.temperature);
  wire::read_open(options, "top_k", sampling.top_k, open.top_k);
  wire::read_open(options, "top_p", sampling.top_p, open.top_p);
  if (sampling.top_p == 0) sampling.top_p = wire::kMinTopP;
  wire::read_open(options, "min_p", sampling.min_p, open.min_p);
  wire::read_open(options, "repeat_penalty", sampling.repetition_penalty, open.repetition_penalty);
  options.read("presence_penalty", sampling.presence_penalty);
  options.read("frequency_penalty", sampling.frequency_penalty);
  options.read_strings("stop", sampling.stop);
  read_repeat_last_n(options, sampling);
  refuse_unless(options, "typical_p", 1, 0);
  refuse_unless(options, "tfs_z", 1, 0);
  refuse_unless(options, "mirostat", 0, 0);
  // Parameters of mirostat have no effect, because mirostat must be turned off.
  for (const char* name : {"mirostat_tau", "mirostat_eta"}) options.skip(name);
  for (const char* name : kLoadOptions) options.skip(name);
  bool penalize_newline = true;
  options.read("penalize_newline", penalize_newline);
  if (!penalize_newline) options.refuse("penalize_newline", "penalize_newline must be true");
  if (auto status = options.finish(); !status) fields.refuse(std::move(status.error()));
}

}  // namespace pagoda::http::ollama
